"""When Opus is heard: libopus encodes silence, then a tone, and the ear tells where the tone begins."""

import array
import math

import opuslib_next
import pytest

from tests.unit.clients.bench.test_listener import told
from voicegate.clients.bench.dialects.conversation import Chunk, Ended
from voicegate.clients.bench.dialects.ear import Ear

FRAME = 960  # 20 ms at 48 kHz
LATEST_48K = 480  # after its true beginning: the codec's delay, and the tone's rise


def packets_of(*amplitudes: int) -> list[bytes]:
    """A packet of 20 ms of a tone for each amplitude."""
    encoder = opuslib_next.Encoder(48_000, 1, "audio")
    return [
        encoder.encode(array.array("h", [round(amplitude * math.sin(at / 10)) for at in range(FRAME)]).tobytes(), FRAME)
        for amplitude in amplitudes
    ]


async def test_silence_before_the_first_sound_counts() -> None:
    ear, packets = Ear(), packets_of(0, 0, 0, 8_000, 8_000, 8_000)
    chunks = [Chunk(FRAME, ear.hear([packet])) for packet in packets]
    record = await told(*chunks, Ended())
    assert record.audible_48k is not None
    assert 3 * FRAME <= record.audible_48k <= 3 * FRAME + LATEST_48K


def test_what_follows_the_first_sound_is_not_looked_at() -> None:
    ear = Ear()
    assert len(ear.hear(packets_of(0, 8_000))) == 2 * 2 * FRAME
    assert ear.hear(packets_of(8_000)) == b""


def test_without_libopus_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from voicegate.clients.bench.dialects import ear

    def missing(rate_hz: int) -> None:
        raise ear.MissingDependency("no libopus")

    monkeypatch.setattr(ear, "opus_decoder", missing)
    assert Ear().hear(packets_of(8_000)) == b""
