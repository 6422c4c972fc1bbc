"""Render the plain manifests of the chart: `python -m tools.chart`."""

from tools.chart.files import write as write_files
from tools.chart.manifests import write

if __name__ == "__main__":
    write_files()
    write()
