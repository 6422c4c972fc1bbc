"""Structured logging on the standard library: an event in a few words, and the values as fields.

    log = get_logger(__name__)
    log.info("grants published", node="node-1", count=16)

Field names are shared by all components, so that one address or Pod can be followed through all logs: node, pod,
address, network, subnet, reason, error. A line is text on a terminal and one JSON object otherwise.

The standard library is used because the agent's memory is limited (`make bench-agent`), and no structured logging
library is needed for two formatters.
"""

import logging
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from types import MappingProxyType
from typing import ClassVar

import msgspec

FORMATS = ("auto", "text", "json")
MAX_KEYS = 1000
"""Keys of an `OnceLogger`: users choose some of them."""
_NO_FIELDS: Mapping[str, object] = MappingProxyType({})
_CONTEXT: ContextVar[Mapping[str, object]] = ContextVar("log_context", default=_NO_FIELDS)


class Logger:
    """A logger whose calls take an event and fields. `bind` returns one with fields that every call adds."""

    __slots__ = ("_fields", "_logger")

    def __init__(self, logger: logging.Logger, fields: Mapping[str, object] = _NO_FIELDS) -> None:
        self._logger = logger
        self._fields = fields

    def bind(self, **fields: object) -> "Logger":
        """Return a logger that adds these fields to each line."""
        return Logger(self._logger, {**self._fields, **fields})

    def debug(self, event: str, /, **fields: object) -> None:
        """Log one step of an operation."""
        self._log(logging.DEBUG, event, fields)

    def info(self, event: str, /, **fields: object) -> None:
        """Log a state change that an operator may want to see."""
        self._log(logging.INFO, event, fields)

    def warning(self, event: str, /, **fields: object) -> None:
        """Log what may need action."""
        self._log(logging.WARNING, event, fields)

    def error(self, event: str, /, **fields: object) -> None:
        """Log what needs action."""
        self._log(logging.ERROR, event, fields)

    def exception(self, event: str, /, **fields: object) -> None:
        """Log an unexpected exception with its traceback; called from an except block."""
        self._log(logging.ERROR, event, fields, exc_info=True)

    def _log(self, level: int, event: str, fields: Mapping[str, object], *, exc_info: bool = False) -> None:
        logger = self._logger
        if logger.isEnabledFor(level):
            logger.handle(_Record(logger.name, level, event, {**self._fields, **fields}, exc_info=exc_info))


class _Record(logging.LogRecord):
    """A record without caller, process and thread: no line shows them, and finding them takes longer than the rest."""

    _DEFAULTS: ClassVar = vars(logging.LogRecord("", logging.NOTSET, "", 0, "", (), None))

    def __init__(self, name: str, level: int, event: str, fields: Mapping[str, object], *, exc_info: bool) -> None:
        created, level_name = time.time(), logging.getLevelName(level)
        vars(self).update(
            self._DEFAULTS,
            name=name,
            msg=event,
            levelno=level,
            levelname=level_name,
            created=created,
            msecs=created % 1 * 1000,
            exc_info=sys.exc_info() if exc_info else None,
            fields=fields,
        )


class OnceLogger:
    """Logs a warning once per key: what it reports happens again and again."""

    def __init__(self, log: Logger) -> None:
        self._log = log
        self._logged: set[str] = set()

    def warning(self, event: str, /, *, key: str, **fields: object) -> None:
        """Log an event, unless it was logged with this key, or with too many others."""
        if key not in self._logged and len(self._logged) < MAX_KEYS:
            self._logged.add(key)
            self._log.warning(event, **fields)

    def reset(self, key: str) -> None:
        """Log it again next time."""
        self._logged.discard(key)


def get_logger(name: str) -> Logger:
    """Return the logger of a module."""
    return Logger(logging.getLogger(name))


@contextmanager
def log_context(**fields: object) -> Iterator[None]:
    """Add fields to every line that is logged within the block, in the same task or thread."""
    token = _CONTEXT.set({**_CONTEXT.get(), **fields})
    try:
        yield
    finally:
        _CONTEXT.reset(token)


def fields_of(record: logging.LogRecord) -> Mapping[str, object]:
    """Return the fields of a record and of its context; records of other libraries have only the context's."""
    return {**_CONTEXT.get(), **getattr(record, "fields", _NO_FIELDS)}


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, logger, event, the fields, and the traceback of an exception."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **fields_of(record),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        try:
            return msgspec.json.encode(line, enc_hook=str).decode()
        except UnicodeEncodeError:  # such as the name of a file that is not UTF-8
            return msgspec.json.encode({key: _encodable(value) for key, value in line.items()}).decode()


class TextFormatter(logging.Formatter):
    """One line of text: time, level, event, key=value fields; values with spaces are quoted."""

    def __init__(self, template: str = "%(asctime)s %(levelname)-7s %(name)s: %(message)s") -> None:
        super().__init__(template)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  the standard library's name
        """Append the fields to the event."""
        pairs = (f"{key}={_text(value)}" for key, value in fields_of(record).items())
        return " ".join((super().formatMessage(record), *pairs))


def _text(value: object) -> str:
    text = _encodable(value)
    quoted = not text.isprintable() or not text or any(each.isspace() or each in '"=' for each in text)
    return msgspec.json.encode(text).decode() if quoted else text


def _encodable(value: object) -> str:
    """Return a value as text, with escapes for what is not Unicode."""
    return str(value).encode(errors="backslashreplace").decode()


def configure_logging(*, level: str = "info", log_format: str = "auto") -> None:
    """Log to standard error; `auto` is text on a terminal and JSON otherwise."""
    text = log_format == "text" or (log_format == "auto" and sys.stderr.isatty())
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(TextFormatter() if text else JsonFormatter())
    # no line shows them, and finding them is a third of the cost of a line
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
