"""Structured logs on stderr: one event name, and fields. Never user text at info level and above.

Our own lines go straight to the writer; those of libraries come by way of `logging`. Both leave in the same form.
"""

import json
import logging
import sys
from collections.abc import Callable, MutableMapping
from typing import Any, Final

import orjson
import structlog

from voicegate.gateway.config import LogFormat, LogLevel
from voicegate.gateway.log_bounds import LineBounds
from voicegate.gateway.log_writer import KIND, LINES, DetachedHandler

# A person who watches a terminal knows the day, and is helped by the local time.
_STAMPS: Final[dict[LogFormat, Any]] = {
    "json": structlog.processors.TimeStamper(fmt="iso", utc=True),
    "console": structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False),
}
Event = MutableMapping[str, Any]


def configure_logs(
    level: LogLevel, log_format: LogFormat, lines_per_s: int | None = None, *, replica: str | None = None
) -> None:
    """Once, at start: our lines and those of the libraries leave in the same form, of each kind at most so many.

    `replica`: the engine process that this is, which its lines name.
    """
    if log_format == "auto":
        log_format = "console" if sys.stderr.isatty() else "json"
    handler = DetachedHandler(sys.stderr, bounds=None if lines_per_s is None else LineBounds(lines_per_s))

    def admit(_logger: Any, _method: str, event: Event) -> Event:
        if not handler.admits(event["event"]):
            raise structlog.DropEvent
        return event

    def name_replica(_logger: Any, _method: str, event: Event) -> Event:
        return {**event, "replica": replica}

    shared: list[Any] = [structlog.stdlib.add_log_level, _STAMPS[log_format]]
    if replica is not None:
        shared.append(name_replica)
    last = _last_of(log_format)
    structlog.configure(
        processors=[admit, *shared, lambda _logger, _method, event: ((event,), {})],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=lambda *_: _Lines(handler, last),
        cache_logger_on_first_use=False,
    )
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.ExtraAdder(allow=[LINES, KIND])],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    logging.captureWarnings(True)  # Python would write them itself, and wait for the reader
    # websockets tells of every connection at info, which we do ourselves with more to say.
    logging.getLogger("websockets").setLevel(logging.DEBUG if level == "debug" else logging.WARNING)
    # These warn of everything in a request that they cannot read.
    for library in ("uvicorn", "python_multipart"):
        logging.getLogger(library).setLevel(logging.DEBUG if level == "debug" else logging.ERROR)


def _last_of(log_format: LogFormat) -> list[Any]:
    """The processor that makes a line of an event."""
    if log_format == "console":
        plain = structlog.dev.plain_traceback
        return [_for_people, structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain)]
    # Tracebacks without local variables: those hold what users said.
    to_dict = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
    return [structlog.processors.ExceptionRenderer(to_dict), structlog.processors.JSONRenderer(_to_json)]


def _for_people(_logger: Any, _method: str, event: Event) -> Event:
    """Shows text of clients without its control characters; None tells a person nothing."""
    return {
        key: _shown(value) if isinstance(value, str) else value for key, value in event.items() if value is not None
    }


def _shown(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def _to_json(event: Event, default: Callable[[Any], Any]) -> str:
    """ASCII, so that nothing in a line does more to a terminal than to be shown."""
    try:
        # A dataclass by its repr, which leaves out what is secret.
        line = orjson.dumps(event, default=default, option=orjson.OPT_PASSTHROUGH_DATACLASS)
    except TypeError:  # what only Python's own can write: lone surrogates, numbers beyond 64 bits
        return json.dumps(event, default=default)
    return line.decode() if line.isascii() else json.dumps(event, default=default)


class _Lines:
    """Where our lines go: past `logging`, whose record of each and search for its caller cost more than all else."""

    def __init__(self, handler: DetachedHandler, processors: list[Any]) -> None:
        self._handler = handler
        self._processors = processors

    def info(self, event: Event) -> None:
        """A line that cannot be made is told of, as `logging` does, and ends nothing."""
        try:
            line: Any = event
            for process in self._processors:
                line = process(self, "info", line)
            self._handler.put(line)
        except Exception:  # noqa: BLE001 - a field's own repr may raise what it likes
            self._handler.handleError(logging.makeLogRecord({"msg": event.get("event")}))

    debug = warning = error = critical = info


def flush_logs() -> None:
    """Returns when all lines so far are written, or after a second."""
    for handler in logging.getLogger().handlers:
        handler.flush()


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    logger: structlog.stdlib.BoundLogger = structlog.get_logger(name)
    return logger
