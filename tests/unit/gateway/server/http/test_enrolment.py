"""Recordings in base64, as requests bring them."""

import base64
import tracemalloc

import pytest

from voicegate.gateway.server.http.enrolment import decoded
from voicegate.gateway.server.http.refused import Refused

RECORDING = bytes(range(256)) * 2500  # of three pieces


@pytest.mark.parametrize("width", [None, 1, 3, 76])
@pytest.mark.parametrize("recording", [RECORDING, RECORDING + b"a", RECORDING + b"ab", b""])
async def test_blanks_may_stand_anywhere(width: int | None, recording: bytes) -> None:
    text = base64.b64encode(recording).decode()
    lines = [text] if width is None else [text[at : at + width] for at in range(0, len(text), width)]
    assert await decoded("\r\n".join(lines)) == recording


@pytest.mark.parametrize("text", ["AAA", "A" * 300_001, "A" * 262_144 + "A", "A*AA"])
async def test_what_is_no_base64_is_refused(text: str) -> None:
    with pytest.raises(Refused, match="ref_audio is not in base64"):
        await decoded(text)


async def test_blanks_take_no_more_memory_than_the_text() -> None:
    text = "AB CD " * 500_000
    tracemalloc.start()
    try:
        await decoded(text)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 8 * len(text), "a list of all words takes twenty times the text's memory"
