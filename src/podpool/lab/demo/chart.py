"""A picture in the terminal: one filled area and one line over it, in plain characters that need no colour."""

from collections.abc import Sequence

from rich.text import Text

FILLED = " ▁▂▃▄▅▆▇█"


def draw(*, area: Sequence[int], line: Sequence[int], height: int, top: int, left: int = 5) -> Text:
    """Draw both from left to right; `top` is the value at the upper edge."""
    text = Text()
    for row in reversed(range(height)):
        low, high = row * top / height, (row + 1) * top / height
        label = f"{round(high):>{left - 1}} " if row in {height - 1, height // 2 - 1} else " " * left
        text.append(label, style="dim")
        for filled, value in zip(area, line, strict=True):
            if low < value <= high:
                text.append("━", style="bold cyan")
            else:
                eighths = round(8 * min(max((filled - low) / (high - low), 0), 1))
                text.append(FILLED[eighths], style="yellow")
        text.append("\n")
    text.append(" " * left + "─" * len(area) + "\n", style="dim")
    return text
