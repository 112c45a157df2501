"""Log lines: one JSON object each, ours and the libraries'."""

import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from voicegate.gateway.config import LogFormat
from voicegate.gateway.logs import configure_logs, get_logger

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    root, websockets = logging.getLogger(), logging.getLogger("websockets")
    before = (list(root.handlers), root.level, websockets.level)
    yield
    root.handlers, level, websockets_level = before
    root.setLevel(level)
    websockets.setLevel(websockets_level)
    structlog.reset_defaults()


def test_lines_are_json_with_fields(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("info", "json")
    log = get_logger("gateway.test").bind(session="s1")
    log.info("context done", context="a", audio_ms=40)
    log.debug("not shown")
    try:
        raise ValueError("broken")
    except ValueError:
        log.exception("socket failed")
    logging.getLogger("websockets.server").info("not shown")
    logging.getLogger("other").warning("of a library")
    out, err = capsys.readouterr()
    lines = [json.loads(line) for line in err.splitlines()]
    assert out == ""
    assert [line["event"] for line in lines] == ["context done", "socket failed", "of a library"]
    assert lines[0].items() >= {"level": "info", "session": "s1", "context": "a", "audio_ms": 40}.items()
    assert lines[1]["exception"][0]["exc_value"] == "broken"
    assert all(line["timestamp"].endswith("Z") for line in lines)


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_a_line_is_a_line(log_format: LogFormat, capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("debug", log_format)
    get_logger("gateway.test").info("socket opened", peer="a\nb")
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_tracebacks_do_not_show_what_users_said(log_format: LogFormat, capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("info", log_format)

    def speak(text: str) -> None:
        raise RuntimeError(f"cannot speak {len(text)} characters")

    try:
        speak("sensi" + "tive")
    except RuntimeError:
        get_logger("gateway.test").exception("socket failed")
    err = capsys.readouterr().err
    assert "cannot speak 9 characters" in err
    assert "sensitive" not in err
