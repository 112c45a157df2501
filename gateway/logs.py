"""Structured logs on stderr: one event name, and fields. Never user text at info level and above."""

import logging
import sys
from collections.abc import MutableMapping
from typing import Any

import structlog

from voicegate.gateway.config import LogFormat, LogLevel
from voicegate.gateway.log_bounds import LineBounds
from voicegate.gateway.log_writer import KIND, LINES, DetachedHandler

_SHARED: list[Any] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
]


def configure_logs(
    level: LogLevel, log_format: LogFormat, lines_per_s: int | None = None, *, replica: str | None = None
) -> None:
    """Once, at start: our lines and those of the libraries leave in the same form, of each kind at most so many.

    `replica`: the engine process that this is, which its lines name.
    """

    def name_replica(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        return {**event, "replica": replica}

    shared = _SHARED if replica is None else [*_SHARED, name_replica]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    # Tracebacks without local variables: those hold what users said.
    to_dict = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
    last: list[Any] = [structlog.processors.ExceptionRenderer(to_dict), structlog.processors.JSONRenderer()]
    if log_format == "console":
        plain = structlog.dev.plain_traceback
        last = [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain)]
    handler = DetachedHandler(sys.stderr, bounds=None if lines_per_s is None else LineBounds(lines_per_s))
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.ExtraAdder(allow=[LINES, KIND])],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    logging.captureWarnings(True)  # Python would write them itself, and wait for whoever reads
    # websockets tells of every connection at info, which we do ourselves with more to say.
    logging.getLogger("websockets").setLevel(logging.DEBUG if level == "debug" else logging.WARNING)
    # These warn of everything in a request that they cannot read.
    for library in ("uvicorn", "python_multipart"):
        logging.getLogger(library).setLevel(logging.DEBUG if level == "debug" else logging.ERROR)


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    logger: structlog.stdlib.BoundLogger = structlog.get_logger(name)
    return logger
