"""The player's codec against protocol/vectors, in the browser itself."""

import json
from typing import Any

import msgspec
import pytest
from playwright.async_api import Page

from tests.unit.protocol.test_vectors import VECTORS
from voicegate.protocol import codec

pytestmark = pytest.mark.asyncio(loop_scope="session")

UNPACK = """
    wire.unpackAudio(Uint8Array.from(row.hex.match(/../g) ?? [], (byte) => parseInt(byte, 16)).buffer)
"""
HEX = "Array.from(packet, (byte) => byte.toString(16).padStart(2, '0')).join('')"
ENCODE = """
    ({
        open: ({ context, format, pace, ...rest }) => wire.encode.open(context, {
            ...rest,
            format: { ...format, frameMs: format.frame_ms, sampleRate: format.sample_rate },
            leadMs: pace.lead_ms ?? undefined,
            maxBufferDelayMs: rest.max_buffer_delay_ms,
        }),
        text: ({ context, text }) => wire.encode.text(context, text),
        flush: ({ context, id }) => wire.encode.flush(context, id),
        end: ({ context }) => wire.encode.end(context),
        cancel: ({ context, played_ms }) => wire.encode.cancel(context, played_ms),
        playback: ({ context, played_ms, buffer_ms, underruns }) =>
            wire.encode.playback(context, played_ms, buffer_ms, underruns),
        ping: ({ t }) => wire.encode.ping(t),
        ack: ({ received }) => wire.encode.ack(received),
        resume: ({ session, token, received }) => wire.encode.resume(session, token, received),
    })[row.fields.type](row.fields)
"""


async def of_each(page: Page, rows: list[Any], expression: str) -> list[Any]:
    """`expression` of each row and of the module `wire`; what it throws, as {thrown: text}."""
    result: list[Any] = await page.evaluate(
        f"""async (rows) => {{
            const wire = await import("/player/wire.js");
            const of = (row) => {expression};
            return rows.map((row) => {{
                try {{ return of(row) }} catch (error) {{
                    return {{ thrown: error.message, isWireError: error instanceof wire.WireError }}
                }}
            }});
        }}""",
        rows,
    )
    return result


def vectors(file_name: str) -> list[Any]:
    rows: list[Any] = json.loads((VECTORS / file_name).read_text())
    return rows


async def test_audio_messages_are_read(scratch: Page) -> None:
    rows = vectors("audio_messages.json")
    as_in_vectors = f"""(({{ pts48k, isFirst, isLast, isDiscontinuity, packets, ...rest }}) => ({{
        ...rest, pts_48k: pts48k, is_first: isFirst, is_last: isLast, is_discontinuity: isDiscontinuity,
        packets: packets.map((packet) => {HEX}),
    }}))({UNPACK})"""
    assert await of_each(scratch, rows, as_in_vectors) == [row["fields"] for row in rows]


async def test_bad_audio_messages_say_what_is_wrong(scratch: Page) -> None:
    rows = vectors("bad_audio_messages.json")
    for row, answer in zip(rows, await of_each(scratch, rows, UNPACK), strict=True):
        assert answer["isWireError"], row
        assert row["message_contains"] in answer["thrown"]


async def test_client_messages_read_as_they_were_meant(scratch: Page) -> None:
    # A field that this client never sends.
    rows = [row for row in vectors("client_messages.json") if not (row["fields"].get("pace") or {}).get("burst_ms")]
    assert len({row["fields"]["type"] for row in rows}) == 9
    for row, sent in zip(rows, await of_each(scratch, rows, ENCODE), strict=True):
        assert msgspec.to_builtins(codec.decode_client(sent)) == row["fields"]


async def test_server_messages_are_read(scratch: Page) -> None:
    rows = vectors("server_messages.json")
    for row, read in zip(rows, await of_each(scratch, rows, "wire.readMessage(row.json)"), strict=True):
        assert read == json.loads(row["json"])


async def test_server_messages_that_lack_something_are_told(scratch: Page) -> None:
    rows = ["{", '{"type":"opened","context":"a"}', '{"type":"done","context":"a","audio_ms":"1","timing":{}}', "null"]
    cut, opened, done, nothing = await of_each(scratch, rows, "wire.readMessage(row)")
    assert "not JSON" in cut["thrown"]
    assert "`handle` of `opened`" in opened["thrown"]
    assert "`audio_ms` of `done`" in done["thrown"]
    assert nothing is None


async def test_long_text_is_cut_between_characters(scratch: Page) -> None:
    rows = ["a" * 100, "é" * 100, "😀" * 100, "a😀" * 50, "好" * 64, ""]
    for text, pieces in zip(rows, await of_each(scratch, rows, "[...wire.textPieces(row, 16)]"), strict=True):
        assert "".join(pieces) == text
        assert all(0 < len(piece.encode()) <= 16 for piece in pieces)


async def test_code_points_become_indices(scratch: Page) -> None:
    text = "a😀b😀"
    rows = [[0, 1, 2, 3, 4], [4, 2], [9]]
    expression = "((cursor) => row.map((count) => cursor.indexAt('a😀b😀', count)))(new wire.CodePointCursor())"
    assert len(text) == 4
    assert await of_each(scratch, rows, expression) == [[0, 1, 3, 4, 6], [6, 3], [6]]


async def test_addresses(scratch: Page) -> None:
    rows = ["http://h:1", "https://h/", "ws://h", "wss://h/v1/stream?key=x#y", "https://h/a/b/?key=x", "ftp://h", "h"]
    *good, ftp, bare = await of_each(scratch, rows, "wire.streamUrl(row)")
    assert good == [
        *("ws://h:1/v1/stream", "wss://h/v1/stream", "ws://h/v1/stream", "wss://h/v1/stream?key=x"),
        "wss://h/a/b/v1/stream?key=x",
    ]
    assert "looks like" in ftp["thrown"]
    assert "thrown" in bare
