"""Logs are lines of JSON."""

import logging
import sys

import msgspec

from podpool.runtime.logging import JsonFormatter, TextFormatter, log_context


def record(**parts: object) -> logging.LogRecord:
    made = logging.makeLogRecord(
        {"msg": "%s cools down", "args": ("10.0.0.5",), "levelno": 20, "levelname": "INFO"} | parts
    )
    made.created = 0.25
    return made


def test_a_record_is_one_line_with_its_time() -> None:
    line = JsonFormatter().format(record(name="podpool.agent"))
    assert {
        "time": "1970-01-01T00:00:00.250+00:00",
        "level": "info",
        "logger": "podpool.agent",
        "event": "10.0.0.5 cools down",
    } == msgspec.json.decode(line)


def test_a_traceback_stays_on_the_line() -> None:
    try:
        raise ValueError("torn")  # noqa: TRY301  to have a traceback
    except ValueError:
        line = JsonFormatter().format(record(exc_info=sys.exc_info()))
    assert "\n" not in line
    assert "ValueError: torn" in msgspec.json.decode(line)["traceback"]


def test_lines_within_a_context_have_its_fields() -> None:
    with log_context(controller="nodes", key="n1"), log_context(key="n2"):
        line = msgspec.json.decode(JsonFormatter().format(record()))
    assert ("nodes", "n2") == (line["controller"], line["key"])
    assert "key" not in msgspec.json.decode(JsonFormatter().format(record()))


def test_a_value_that_is_not_unicode_is_escaped() -> None:
    """Such as the name of a file whose bytes are not UTF-8."""
    hostile = record(fields={"file": "a\udcff", "count": 3})
    assert "a\\udcff" == msgspec.json.decode(JsonFormatter().format(hostile))["file"]
    assert r"file=a\udcff count=3" in TextFormatter().format(hostile)


def test_a_value_cannot_add_a_line_or_control_a_terminal() -> None:
    line = TextFormatter().format(record(fields={"network": "a\n2026-01-01 INFO forged", "pod": "\x1b[2J"}))
    assert line.isprintable()
    assert r'network="a\n2026-01-01 INFO forged"' in line
