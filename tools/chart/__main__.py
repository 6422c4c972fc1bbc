"""Write the generated files of the chart: `python -m tools.chart`."""

from tools.chart.files import write

if __name__ == "__main__":
    write()
