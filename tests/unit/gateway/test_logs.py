"""Log lines: one JSON object each, ours and the libraries'."""

import json
import logging
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from voicegate.gateway.config import LogFormat
from voicegate.gateway.log_bounds import LineBounds
from voicegate.gateway.log_writer import DetachedHandler
from voicegate.gateway.logs import configure_logs, get_logger
from voicegate.gateway.server.entrance.callers import Caller


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    root, libraries = (
        logging.getLogger(),
        [logging.getLogger(name) for name in ("websockets", "uvicorn", "python_multipart")],
    )
    handlers, levels = list(root.handlers), [logger.level for logger in (root, *libraries)]
    yield
    logging.captureWarnings(False)
    root.handlers = handlers
    for logger, level in zip((root, *libraries), levels, strict=True):
        logger.setLevel(level)
    structlog.reset_defaults()


def written(capsys: pytest.CaptureFixture[str]) -> Any:
    logging.getLogger().handlers[0].flush()
    return capsys.readouterr()


@pytest.mark.parametrize("is_terminal", [True, False])
def test_people_at_a_terminal_read_lines_and_machines_json(
    is_terminal: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    configure_logs("info", "auto")
    get_logger("gateway.test").info("ready", voices=2)
    line = written(capsys).err
    if is_terminal:
        plain = re.sub(r"\x1b\[\d*m", "", line)
        assert re.fullmatch(r"\d\d:\d\d:\d\d \[info +] ready +voices=2\n", plain)
    else:
        assert json.loads(line).items() >= {"event": "ready", "voices": 2}.items()


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
    logging.getLogger("uvicorn.error").warning("not shown")
    logging.getLogger("other").warning("of a library")
    out, err = written(capsys)
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
    assert len(written(capsys).err.splitlines()) == 1


@pytest.mark.parametrize("log_format", ["json", "console"])
@pytest.mark.parametrize("text", ["\x1b]0;owned\x07", "\x1b[2J", "/\x9b31m", "\u202eabc"])
def test_what_clients_write_does_nothing_to_a_terminal(
    log_format: LogFormat, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    configure_logs("info", log_format)
    get_logger("gateway.test").info("a request is refused", path=text)
    get_logger("gateway.test").info(f"refused: {text}")
    err = written(capsys).err
    assert "refused" in err
    assert all(char.isprintable() for char in err.replace("\n", ""))


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_tracebacks_do_not_show_what_users_said(log_format: LogFormat, capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("info", log_format)

    def speak(text: str) -> None:
        raise RuntimeError(f"cannot speak {len(text)} characters")

    try:
        speak("sensi" + "tive")
    except RuntimeError:
        get_logger("gateway.test").exception("socket failed")
    err = written(capsys).err
    assert "cannot speak 9 characters" in err
    assert "sensitive" not in err


def test_a_reader_that_reads_nothing_costs_lines_and_no_time() -> None:
    read_end, write_end = os.pipe()
    with open(read_end) as reader, open(write_end, "w") as stream:
        handler = DetachedHandler(stream, max_waiting_lines=10)
        handler.setFormatter(logging.Formatter("%(message)s %(lines)s", defaults={"lines": ""}))
        num_lines = 50_000  # far more than a pipe holds
        for n in range(num_lines):
            handler.handle(logging.makeLogRecord({"msg": f"{n:06d}"}))
        heard, num_dropped = 0, 0
        for line in reader:
            if line.startswith("log lines dropped"):
                num_dropped += int(line.split()[-1])
            else:
                heard += 1
            if heard + num_dropped == num_lines:
                break
    assert heard > 10
    assert num_dropped > 10_000


def test_long_lines_that_wait_are_bounded_in_bytes() -> None:
    read_end, write_end = os.pipe()
    with open(read_end) as reader, open(write_end, "w") as stream:
        handler = DetachedHandler(stream, max_waiting_bytes=1_000_000)
        handler.setFormatter(logging.Formatter("%(message)s %(lines)s", defaults={"lines": ""}))
        for n in range(100):
            handler.handle(logging.makeLogRecord({"msg": f"{n:06d}" + "é" * 50_000}))
        heard, num_dropped = 0, 0
        while heard + num_dropped < 100:
            line = reader.readline()
            if line.startswith("log lines dropped"):
                num_dropped += int(line.split()[-1])
            else:
                heard += 1
        assert 9 <= heard <= 12  # what fits, one that is being written, and what the pipe holds
        handler.handle(logging.makeLogRecord({"msg": "there is room again"}))
        assert reader.readline() == "there is room again \n"


def test_a_flood_of_one_kind_is_counted_and_others_are_heard(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("info", "json", lines_per_s=1)
    log = get_logger("gateway.test")
    for n in range(1000):
        log.info("socket opened", session=f"s{n}")
        logging.getLogger("other").warning(f"message {n} of a library")
    log.error("engine hangs")
    lines = [json.loads(line) for line in written(capsys).err.splitlines()]
    heard = Counter(line["event"] for line in lines if line["event"] in ("socket opened", "engine hangs"))
    assert heard["engine hangs"] == 1
    left_out = {line["kind"]: line["lines"] for line in lines if line["event"].startswith("log lines left out")}
    assert heard["socket opened"] + left_out["socket opened"] == 1000
    assert 5 <= heard["socket opened"] < 100
    assert left_out["other"] > 900


def test_the_count_is_told_while_the_flood_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("voicegate.gateway.log_bounds.REPORT_S", 0.0)
    read_end, write_end = os.pipe()
    with open(read_end) as reader, open(write_end, "w") as stream:
        handler = DetachedHandler(stream, bounds=LineBounds(0.001))
        handler.setFormatter(logging.Formatter("%(message)s %(lines)s", defaults={"lines": ""}))
        for _ in range(3):
            handler.handle(logging.makeLogRecord({"name": "x", "msg": "again"}))
        assert reader.readline().startswith("log lines left out")


def test_the_count_of_what_was_dropped_is_a_field(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("info", "json")
    logging.getLogger("other").warning("log lines dropped", extra={"lines": 7, "secret": "x"})
    (line,) = written(capsys).err.splitlines()
    assert json.loads(line).items() >= {"event": "log lines dropped", "lines": 7, "level": "warning"}.items()
    assert "secret" not in line


def test_a_stream_that_is_gone_ends_nothing() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    with open(write_end, "w") as stream:
        handler = DetachedHandler(stream)
        handler.handle(logging.makeLogRecord({"msg": "nobody hears it"}))
        handler.flush()
    handler.handle(logging.makeLogRecord({"msg": "nor this"}))
    handler.flush()
    assert handler._thread.is_alive()


def test_a_full_disk_ends_nothing() -> None:
    with open("/dev/full", "w") as stream:
        handler = DetachedHandler(stream, max_waiting_lines=10)
        for n in range(1000):
            handler.handle(logging.makeLogRecord({"msg": f"{n:06d}"}))
        handler.flush()
        assert handler._thread.is_alive()


def test_a_stream_that_does_not_block_is_waited_for() -> None:
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    with open(read_end) as reader, open(write_end, "w") as stream:
        handler = DetachedHandler(stream)
        long = "x" * 1_000_000
        handler.handle(logging.makeLogRecord({"msg": long}))
        assert reader.readline() == long + "\n"


def test_a_line_that_cannot_be_written_as_utf8_is_written_somehow() -> None:
    read_end, write_end = os.pipe()
    with open(read_end) as reader, open(write_end, "w") as stream:
        DetachedHandler(stream).handle(logging.makeLogRecord({"msg": "\ud83d"}))
        assert reader.readline() == "\\ud83d\n"


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_a_line_that_cannot_be_made_ends_nothing(log_format: LogFormat, capsys: pytest.CaptureFixture[str]) -> None:
    class Unspeakable:
        def __repr__(self) -> str:
            raise ValueError("no word for it")

    configure_logs("info", log_format)
    log = get_logger("gateway.test")
    log.info("socket opened", peer=Unspeakable())
    log.info("socket closed")
    err = written(capsys).err
    assert "no word for it" in err
    assert "socket closed" in err


@pytest.mark.parametrize("value", ["über", "\x9b31m", "\ud83d", 2**80, ("a", 1), {1: "one"}])
def test_json_lines_are_ascii_and_as_pythons_own_writer_means_them(
    value: object, capsys: pytest.CaptureFixture[str]
) -> None:
    configure_logs("info", "json")
    get_logger("gateway.test").info("said", value=value)
    (line,) = written(capsys).err.splitlines()
    assert line.isascii()
    assert str(json.loads(line)["value"]) == str(json.loads(json.dumps(value)))


def test_what_a_dataclass_does_not_show_stays_out_of_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("info", "json")
    get_logger("gateway.test").info("said", caller=Caller(tag="kiosk", keys=("secret",)))
    err = written(capsys).err
    assert "kiosk" in err
    assert "secret" not in err
