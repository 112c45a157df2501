"""docs/protocol.md against the code: its state table, its examples, and that it leaves nothing out."""

import re
from pathlib import Path

import msgspec
import orjson
import pytest
from websockets.asyncio.messages import MAX_FRAGMENTS

from tests.unit.gateway.sessions import MESSAGES, NOW, error_of, session_in
from voicegate.engine import units
from voicegate.engine.config import EngineConfig
from voicegate.engine.core.prompting import MAX_INSTRUCT_CHARS
from voicegate.engine.dictionary import MAX_SAID_CHARS, MAX_WRITTEN_CHARS
from voicegate.engine.text import breaks
from voicegate.engine.voices import maker
from voicegate.gateway.auth import access
from voicegate.gateway.config import GatewayConfig
from voicegate.gateway.server import listener
from voicegate.gateway.server.conversations import conversation
from voicegate.gateway.server.entrance import callers, reception
from voicegate.gateway.server.http import bodies, enrolment, tokens
from voicegate.gateway.server.http.pages import PAGES
from voicegate.gateway.server.status import Load
from voicegate.gateway.server.websocket import bounded_socket
from voicegate.gateway.session import context, inflow, player, stall
from voicegate.gateway.session.context import ACCEPTS, ContextState
from voicegate.gateway.session.continuity import ResumeLimits
from voicegate.gateway.session.opening import SessionLimits
from voicegate.gateway.session.quota import QuotaLimits
from voicegate.protocol import audio_message, codec, delivery, messages
from voicegate.protocol.audio_message import AudioMessage
from voicegate.protocol.dialects import one_shot
from voicegate.protocol.errors import CloseCode, ErrorCode
from voicegate.protocol.messages import SUBPROTOCOL, ClientMessage, ServerMessage

DOC = (Path(__file__).parents[3] / "docs" / "protocol.md").read_text()
STRUCTS = (*ClientMessage.__args__, *ServerMessage.__args__)


def table_rows(first_header: str) -> list[list[str]]:
    """The cells of the table whose header starts so, header first."""
    lines = DOC.splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith(f"| {first_header} |"))
    rows = []
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip().strip("`") for cell in line.strip("|").split("|")])
    return [rows[0], *rows[2:]]


def test_the_state_table_is_the_codes() -> None:
    header, *rows = table_rows("state")
    kinds = {kind.__struct_config__.tag: kind for kind in MESSAGES}
    assert header[1:] == list(kinds)
    in_doc = {row[0]: dict(zip(header[1:], row[1:], strict=True)) for row in rows}
    in_code: dict[str, dict[str, str]] = {}
    for state in (None, ContextState.OPEN, ContextState.DRAINING, ContextState.CANCELLING):
        cells = {}
        for tag, kind in kinds.items():
            follows = ACCEPTS[state].get(kind)
            if follows is not None:
                cells[tag] = f"→ {follows.value}"
            else:
                actions = session_in(state).receive(MESSAGES[kind], NOW)
                cells[tag] = error_of(actions).code if actions else "ignored"
        in_code["(none)" if state is None else state.value] = cells
    assert in_doc == in_code


def test_every_message_and_field_is_there() -> None:
    nested = (messages.Format, messages.Pace, messages.Limits, messages.AlignmentItem, messages.Timing)
    for struct in (*STRUCTS, *nested):
        tag = struct.__struct_config__.tag
        for name in ([tag] if tag else []) + [item.name for item in msgspec.structs.fields(struct)]:
            assert re.search(rf"`([a-z]+\.)?{name}`", DOC), f"{struct.__name__}: {name}"


def rows_of(struct: type[msgspec.Struct]) -> dict[str, str]:
    """The page's default of each field: its * for those that are required."""
    tag = struct.__struct_config__.tag
    part = DOC.split(f"### `{tag}` —")[1].split("\n### ")[0] if tag else DOC
    header = "| field " if tag else f"| field of `{struct.__name__.lower()}` "
    start = next(n for n, line in enumerate(part.splitlines()) if line.startswith(header))
    defaults = {}
    for line in part.splitlines()[start + 2 :]:
        if not line.startswith("|"):
            break
        names, default = line.strip("|").split("|")[:2]
        for name, mark in re.findall(r"`(\w+)`( \*)?", names):
            defaults[name] = "*" if mark else default.strip()
    return defaults


@pytest.mark.parametrize("struct", [*ClientMessage.__args__, messages.Format, messages.Pace])
def test_defaults_and_nulls_of_fields(struct: type[msgspec.Struct]) -> None:
    """ "A null is allowed only where it is named"."""
    told = rows_of(struct)
    for field in msgspec.structs.fields(struct):
        default = told[field.name]
        takes_null = field.type is None or type(None) in getattr(field.type, "__args__", ())
        assert takes_null is ("null" in default), field.name
        if field.required:
            assert default == "*"
        elif field.default is not None and isinstance(field.default, str | int | float):
            shown = orjson.dumps(field.default).decode()
            assert default.strip("`") in (shown, shown.strip('"'))


def test_every_code_is_there() -> None:
    assert [row[0] for row in table_rows("code")[1:]] == [code.value for code in ErrorCode]
    close_codes = {int(row[0]) for row in table_rows("close code")[1:]}
    assert close_codes >= {code.value for code in CloseCode}


def test_every_page_is_there() -> None:
    assert {path.strip("` ") for row in table_rows("path")[1:] for path in row[0].split(",")} >= set(PAGES)
    assert f"`{SUBPROTOCOL}`" in DOC


def test_defaults_and_limits() -> None:
    limits = {row[0]: row[1] for row in table_rows("limit")[1:]}
    config, session = GatewayConfig(), SessionLimits()
    assert limits["contexts open at once on a socket"] == str(config.contexts_per_socket) == str(session.contexts)
    assert limits["UTF-8 bytes of text in one message"] == str(config.text_bytes) == str(session.text_bytes)
    assert limits["UTF-8 bytes of text in a context's life"] == str(session.context_text_bytes)
    assert session.context_text_bytes == config.context_text_bytes
    assert limits["unanswered flushes of a context"] == str(session.unanswered_flushes)
    assert limits["bytes of one WebSocket message"] == str(config.max_message_bytes)
    assert limits["frames that one WebSocket message comes in"] == str(MAX_FRAGMENTS)
    assert limits["time in which the peer reads nothing while data waits"] == f"{config.write_stall_s:.0f} s"
    assert limits["contexts open at once on a server"] == str(config.max_contexts) == str(QuotaLimits().contexts)
    assert limits["time in which a context hears nothing"] == f"{config.context_idle_s:.0f} s"
    assert limits["time for which a context is open"] == f"{config.context_life_s:.0f} s"
    assert (session.context_idle_s, session.context_life_s) == (config.context_idle_s, config.context_life_s)
    assert limits["messages a second from one socket"] == str(config.messages_per_s) == str(session.messages_per_s)
    assert limits["entries of `open.pronunciations"] == str(messages.MAX_PRONUNCIATIONS)
    assert f"0 to {messages.MAX_BUFFER_DELAY_MS}: the longest time" in DOC
    assert f"up\nto {MAX_WRITTEN_CHARS} characters, and for each up to {MAX_SAID_CHARS} characters" in DOC
    resumable = ResumeLimits()
    assert limits["seconds in which a session can be resumed"] == str(config.resume_s) == str(resumable.seconds)
    kept = limits["bytes kept for a client that is to resume, and for all together"]
    assert kept == f"{resumable.session_bytes}, {resumable.total_bytes}"
    assert kept == f"{config.resume_session_bytes}, {config.resume_total_bytes}"
    assert session.resume_s == resumable.seconds
    assert f"of {messages.MAX_PRONUNCIATION_CHARS} characters in all" in DOC
    assert limits["sockets of a server"] == str(config.max_sockets)
    formats = {row[0]: row[1] for row in table_rows("field of `format`")[1:]}
    assert formats["codec"].strip("`") == messages.Format().codec
    assert formats["frame_ms"] == str(messages.Format().frame_ms)
    assert formats["bitrate"] == str(messages.Format().bitrate)
    assert f"24000. Opus: {units.SAMPLE_RATE_HZ} or {units.OPUS_CLOCK_HZ}" in DOC


def test_numbers_of_the_text() -> None:
    """Numbers that are no setting, and the settings that the text names."""
    config, engine = GatewayConfig(), EngineConfig(Path())
    text = " ".join(DOC.split())
    said = (
        f"WebSocket pings every {listener._PING_S:g} s and closes a socket that has not answered one for "
        f"{listener._PING_S:g} s",
        f"where the operator counts that tag: up to {callers._MAX_TAG_CHARS} characters",
        f'(optional body `{{"seconds": {tokens._DEFAULT_S}}}`, 1 to {tokens.MAX_S})',
        f"Audio comes up to {one_shot.LEAD_MS // 1000} s ahead of real time",
        f"bodies over {config.max_message_bytes >> 20} MiB or not there after {bodies._TIMEOUT_S:g} s",
        f"(a WAV, FLAC, Ogg or MP3 file, up to {enrolment.MAX_RECORDING_BYTES >> 20} MiB)",
        f"the process that made it ended, or took longer than {maker._PATIENCE_S:g} s",
        f"its next request waits for that, up to {enrolment._WAIT_S:g} s",
        f"The body may have {(config.max_message_bytes + enrolment.MAX_RECORDING_CHARS) >> 20} MiB then",
        f"a head of more than {reception.MAX_HEAD_BYTES >> 10} KiB with 431",
        f"the head of a request is cut after {reception._HEAD_TIMEOUT_S:g} s",
        f"once no text has come for {config.stall_ms} ms",
        f"is so much silence, up to {breaks.MAX_PAUSE_MS // 1000} s",
        f"at most {MAX_INSTRUCT_CHARS} characters",
        f"an `ack` after {delivery._ACK_MESSAGES} messages or {delivery._ACK_BYTES >> 10} KiB at the latest",
        f"After {listener._FLOOD_PATIENCE_S:g} s of that without a pause it sends another one",
        f"the socket is cut {bounded_socket.CLOSE_TIMEOUT_S:g} s after that",
    )
    assert [each for each in said if each not in text] == []
    in_words = {
        "waits for up to a second (a setting of the server) in a line": config.waiting_s == 1,
        "less than half a second of audio is left to play": engine.stall_lead_ms == 500,
        "While bytes have waited for it for half a second": conversation._SLOW_AFTER_S == 0.5,
        "at the same `played_ms` for a quarter of a second has paused": player._PAUSED_AFTER_S == 0.25,
        "The server looks twenty times in that time": stall._LOOK_FRACTION == 1 / 20,
        "Two seconds' worth may come at once": inflow._BURST_S == 2,
        "a large message counts as one for every KiB": inflow._BYTES_PER_UNIT == 1024,
        "A message holds a second of audio at most": context._MAX_AUDIO_MESSAGE_MS == 1000,
    }
    assert {each: each in text for each in in_words} == in_words


def test_where_keys_are_looked_for() -> None:
    (told,) = re.findall(r"It is looked for in (.*?)One of several", DOC, re.DOTALL)
    names = set(re.findall(r"`([A-Za-z_-]+)`", told)) - {"token", "bearer"}
    assert names == {*callers._KEY_HEADERS, *callers._KEY_PARAMETERS, "authorization"}
    assert set(callers.KEY_SUBPROTOCOLS) == {"token", "bearer"}
    assert f"One of several, up to {access._MAX_SECRETS}, that is" in DOC


def test_capacity_is_told_field_by_field() -> None:
    row = next(row for row in table_rows("path") if row[0] == "/v1/capacity")
    for field in msgspec.structs.fields(Load):
        assert f"`{field.name}`" in row[1] or field.name.startswith("max_")


def test_the_examples_are_messages() -> None:
    lines = [line for line in DOC.splitlines() if line.startswith(("C: {", "S: {"))]
    assert len(lines) > 10
    for line in lines:
        decode = codec.decode_client if line.startswith("C") else codec.decode_server
        decode(line[3:])


def test_the_audio_example_is_an_audio_message() -> None:
    (example,) = re.findall(r"`((?:[0-9a-f]+ )+[0-9a-f]+)` is the first message", DOC)
    message = AudioMessage(handle=513, sequence=0, pts_48k=0, packets=(b"\xfc\xff\xfe",), is_first=True)
    assert bytes.fromhex(example) == audio_message.pack(message)
