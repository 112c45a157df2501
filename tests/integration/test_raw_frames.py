"""Frames as no client sends them: Autobahn's cases (sections 2 to 7) as far as they apply, cuts at any byte, and noise.

A server of text in and binary out: what a fuzzing client may check of it is the close code, and that others go on.
"""

import asyncio
import contextlib
import json
import struct
from collections.abc import AsyncIterator, Sequence

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs
from websockets.frames import Opcode

from tests.integration.raw_client import frame, raw_connection, raw_peer, text_frame
from tests.integration.wire_client import Served, serving
from voicegate.protocol import messages as wire

PING = text_frame(wire.Ping("still here"))


def part(opcode: Opcode, payload: bytes, *, fin: bool = False, rsv: int = 0) -> bytes:
    """Masked by zero, which leaves the payload as it is; up to 125 bytes."""
    return bare(fin << 7 | rsv << 4 | opcode, 0x80 | len(payload), bytes(4) + payload)


def bare(first_byte: int, second_byte: int, rest: bytes = b"") -> bytes:
    return bytes([first_byte, second_byte]) + rest


def close(payload: bytes) -> bytes:
    return frame(Opcode.CLOSE, payload)


async def answers_to(served: Served, *pieces: bytes) -> bytes:
    """All that comes until a ping behind them is answered; then it is as good a socket as any."""
    async with raw_peer(served.url) as peer:
        for piece in pieces:
            await peer.send(piece)
        await peer.send(PING)
        answer = await peer.read_until(b'"t":"still here"')
        await peer.send(close(struct.pack(">H", 1000)))
        assert close_code(await peer.read_to_end()) == 1000
        return answer


async def answer_without_close(served: Served, raw: bytes) -> bytes:
    """All that comes until the server hangs up of itself: a close of ours could be read before what is wrong."""
    async with raw_peer(served.url) as peer:
        await peer.send(raw)
        return await peer.read_to_end()


async def answer_to(served: Served, *pieces: bytes, ends: bool = False) -> bytes:
    """All that comes until the server hangs up; a close of ours, at the end, makes it do so.

    `ends`: nothing follows, so that half a frame before that close is not taken for one that is still on its way.
    """
    async with raw_peer(served.url) as peer:
        reading = asyncio.create_task(peer.read_to_end())
        with contextlib.suppress(OSError):
            for piece in pieces:
                await peer.send(piece)
            await peer.send(close(struct.pack(">H", 1000)))
        if ends:
            peer.stop_sending()
        return await reading


def close_code(answer: bytes) -> int | None:
    """The code of the close frame that is last; None: there is none, the connection was cut."""
    for size in range(2, 126):
        tail = answer[-size - 2 :]
        if len(tail) == size + 2 and tail[0] == 0x80 | Opcode.CLOSE and tail[1] == size:
            return int(struct.unpack(">H", tail[2:4])[0])
    return None


@contextlib.asynccontextmanager
async def untouched() -> AsyncIterator[Served]:
    """Clients beside one that misbehaves speak on."""
    async with serving() as served, served.client() as other:
        yield served
        await other.speak("a", "still here")
        assert (await other.until_done("a")).packets


VIOLATIONS = {
    "3.1 reserved bit 3": part(Opcode.TEXT, b"{}", fin=True, rsv=1),
    "3.3 reserved bit 2": part(Opcode.TEXT, b"{}", fin=True, rsv=2),
    "3.5 reserved bit 1, of compression that was not agreed": part(Opcode.BINARY, b"x", fin=True, rsv=4),
    "3.6 reserved bits of a ping": part(Opcode.PING, b"", fin=True, rsv=7),
    "4.1.1 opcode 3": bare(0x83, 0x80, bytes(4)),
    "4.1.5 opcode 7": bare(0x87, 0x81, bytes(5)),
    "4.2.1 opcode 11": bare(0x8B, 0x80, bytes(4)),
    "4.2.5 opcode 15": bare(0x8F, 0x80, bytes(4)),
    "2.5 a ping of 126 bytes": bare(0x89, 0xFE, b"\0\x7e" + bytes(4 + 126)),
    "5.1 a ping in parts": part(Opcode.PING, b"a") + part(Opcode.CONT, b"b", fin=True),
    "5.2 a pong in parts": part(Opcode.PONG, b"a") + part(Opcode.CONT, b"b", fin=True),
    "5.9 a part of nothing": part(Opcode.CONT, b"x", fin=True),
    "5.11 a part of nothing, that is not the last": part(Opcode.CONT, b"x"),
    "5.18 a message within a message": part(Opcode.TEXT, b"{") + part(Opcode.TEXT, b"}", fin=True),
    "7.3.2 a close of one byte": close(b"\x03"),
    "7.9.1 close code 0": close(struct.pack(">H", 0)),
    "7.9.2 close code 999": close(struct.pack(">H", 999)),
    "7.9.3 close code 1004": close(struct.pack(">H", 1004)),
    "7.9.4 close code 1005": close(struct.pack(">H", 1005)),
    "7.9.5 close code 1006": close(struct.pack(">H", 1006)),
    "7.9.11 close code 2999": close(struct.pack(">H", 2999)),
    "7.13.1 close code 5000": close(struct.pack(">H", 5000)),
    "RFC 6455 5.1 a frame that is not masked": bare(0x81, 0x02, b"{}"),
    "a length of 2^63": bare(0x81, 0xFF, b"\x80" + bytes(7) + bytes(4)),
}

BAD_TEXT = {
    "6.3.1 no UTF-8 in a frame": frame(Opcode.TEXT, b"\xce\xba\xe1\xbd\xb9\xed\xa0\x80"),
    "6.3.2 no UTF-8 in parts": part(Opcode.TEXT, b"ab\xce") + part(Opcode.CONT, b"\xff", fin=True),
    "6.6.1 a character that is cut off": frame(Opcode.TEXT, b"\xce"),
    "6.12.1 a code point beyond the last": frame(Opcode.TEXT, b"\xf4\x90\x80\x80"),
    "7.5.1 a reason that is no UTF-8": close(struct.pack(">H", 1000) + b"\xce\xba\xff"),
}

ALLOWED = {
    "2.1 an empty ping": frame(Opcode.PING, b""),
    "2.4 a ping of 125 bytes": frame(Opcode.PING, b"x" * 125),
    "2.7 a pong that nobody asked for": frame(Opcode.PONG, b"x"),
    "5.3 text in parts": part(Opcode.TEXT, b'{"type":"pi') + part(Opcode.CONT, b'ng"}', fin=True),
    "5.6 a ping between parts": b"".join(
        [part(Opcode.TEXT, b'{"type":"pi'), frame(Opcode.PING, b"x"), part(Opcode.CONT, b'ng"}', fin=True)]
    ),
    "6.1.2 parts without content": part(Opcode.TEXT, b"") + part(Opcode.CONT, b"") + part(Opcode.CONT, b"", fin=True),
    "a character in two parts": part(Opcode.TEXT, b'{"type":"ping","t":"\xc3') + part(Opcode.CONT, b'\xa4"}', fin=True),
    "1.2.1 a binary message, which is an error and no more": frame(Opcode.BINARY, b""),
    "text of 65536 bytes": frame(Opcode.TEXT, b" " * 65536),
}


# Frames that are no message; an error, and no more.
ERRORS = {
    "6.1.2 parts without content",
    "1.2.1 a binary message, which is an error and no more",
    "text of 65536 bytes",
}


async def test_who_breaks_the_framing_is_closed_with_1002() -> None:
    async with untouched() as served:
        codes = {name: close_code(await answer_to(served, raw)) for name, raw in VIOLATIONS.items()}
        too_large = codes.pop("a length of 2^63")
        assert codes == dict.fromkeys(codes, 1002)
        assert too_large in (1002, 1009)


async def test_who_sends_no_utf8_is_closed_with_1007() -> None:
    async with untouched() as served:
        codes = {name: close_code(await answer_without_close(served, raw)) for name, raw in BAD_TEXT.items()}
        assert codes == dict.fromkeys(codes, 1007)


async def test_a_message_in_too_many_parts_is_closed_with_1009() -> None:
    """Parts without content never come to the limit of bytes, and each is kept until the last has come."""
    async with serving(messages_per_s=1_000_000) as served, raw_peer(served.url) as peer:
        parts = part(Opcode.TEXT, b"") + 5000 * part(Opcode.CONT, b"")
        with contextlib.suppress(OSError):
            await peer.send(parts)
        assert close_code(await peer.read_to_end()) == 1009


async def test_what_is_allowed_is_answered_and_the_socket_stays() -> None:
    async with untouched() as served:
        for name, raw in ALLOWED.items():
            answer = await answers_to(served, raw)
            assert (b'"error"' in answer) == (name in ERRORS), name


@pytest.mark.parametrize("size", [1, 2, 7])
async def test_frames_that_come_in_drops_are_frames(size: int) -> None:
    async with untouched() as served:
        raw = ALLOWED["5.6 a ping between parts"] + ALLOWED["a character in two parts"]
        answer = await answers_to(served, *[raw[at : at + size] for at in range(0, len(raw), size)])
        assert answer.count(b'"pong"') == 3


@pytest.mark.parametrize("num_bytes_behind", [1, 7, len(PING), len(PING) + 1, 40 * len(PING)])
async def test_frames_that_come_with_the_request_are_frames(num_bytes_behind: int) -> None:
    async with untouched() as served, raw_connection(served.url) as peer:
        raw = 40 * PING
        await peer.shake_hands(served.url, behind=raw[:num_bytes_behind])
        await peer.send(raw[num_bytes_behind:] + text_frame(wire.Ping("the last")))
        answer = await peer.read_until(b'"the last"')
        assert answer.count(b'"still here"') == 40


# --- noise --------------------------------------------------------------------------------------------------

TAGS = [str(member.__struct_config__.tag) for member in wire.ClientMessage.__args__]
NAMES = sorted({name for member in wire.ClientMessage.__args__ for name in member.__struct_fields__} | {"nonsense"})
CONTEXTS = st.sampled_from(["a", "b", "x" * 64, "", "\N{GRINNING FACE}"])
WORDS = st.text(max_size=20) | st.sampled_from(
    ["hi there. ", "<|endofprompt|>", "\0", "\u2028", "[laughter]", "\ud800"]
)
ATOMS = WORDS | st.integers(-(2**70), 2**70) | st.floats() | st.booleans() | st.none()
VALUES = ATOMS | st.lists(ATOMS, max_size=3) | st.dictionaries(st.sampled_from(NAMES), ATOMS, max_size=3)


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    """Messages of every type: with few, odd, wrong or additional fields."""
    fields = draw(st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=4))
    value = {"context": draw(CONTEXTS), "text": draw(WORDS), **fields, "type": draw(st.sampled_from(TAGS))}
    return frame(Opcode.TEXT, json.dumps(value).encode("utf-8", "surrogatepass"))


NOISE = st.one_of(
    messages(),
    messages(),
    messages(),
    st.sampled_from([*VIOLATIONS.values(), *BAD_TEXT.values(), *ALLOWED.values()]),
    st.builds(part, st.sampled_from(Opcode), st.binary(max_size=20), fin=st.booleans(), rsv=st.integers(0, 7)),
    st.binary(max_size=40),
)


def assert_noise_is_only_noise(noise: Sequence[bytes], cut_bytes: int) -> None:
    """One socket's bytes, in whatever cuts: an answer or a close, never a fault of ours, and nothing is left behind."""

    async def exchange() -> None:
        async with untouched() as served:
            raw = b"".join(noise)
            with capture_logs() as lines:
                pieces = [raw[at : at + cut_bytes] for at in range(0, len(raw), cut_bytes)]
                answer = await answer_to(served, *pieces, ends=True)
                await served.until(lambda engine: engine.num_live == 0)
            assert close_code(answer) != 1011
            assert [line for line in lines if line["log_level"] in ("error", "critical") or "exc_info" in line] == []

    asyncio.run(exchange())


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@example([b"\0"], 1)
@given(st.lists(NOISE, max_size=12), st.sampled_from([1, 5, 64, 1 << 20]))
def test_noise_is_answered_or_closed_and_leaves_nothing_behind(noise: list[bytes], cut_bytes: int) -> None:
    assert_noise_is_only_noise(noise, cut_bytes)


@pytest.mark.soak
@settings(max_examples=1000, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(NOISE, max_size=60), st.sampled_from([1, 5, 64, 1 << 20]))
def test_much_noise_is_answered_or_closed_and_leaves_nothing_behind(noise: list[bytes], cut_bytes: int) -> None:
    assert_noise_is_only_noise(noise, cut_bytes)
