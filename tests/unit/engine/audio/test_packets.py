"""Packets decoded by libopus give back the samples, at the right place and of the right length."""

import numpy as np
import numpy.typing as npt
import opuslib_next
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voicegate.engine import units
from voicegate.engine.audio.packets import create_packet_encoder
from voicegate.engine.interface import AudioFormat, Codec, Unsupported


def tone(num_samples: int) -> npt.NDArray[np.float32]:
    return (0.3 * np.sin(2 * np.pi * 220 * np.arange(num_samples) / units.SAMPLE_RATE_HZ)).astype(np.float32)


def decode(packets: list[bytes], pre_skip_48k: int, num_samples: int) -> npt.NDArray[np.float32]:
    """As a player does (RFC 7845): 48 kHz out, drop the pre-skip, trim at the exact end, back to 24 kHz."""
    decoder = opuslib_next.Decoder(units.OPUS_CLOCK_HZ, 1)
    decoded = np.concatenate([np.frombuffer(decoder.decode_float(packet, 5760), np.float32) for packet in packets])
    end = pre_skip_48k + num_samples * units.OPUS_CLOCK_PER_SAMPLE
    assert len(decoded) >= end
    return decoded[pre_skip_48k : end : units.OPUS_CLOCK_PER_SAMPLE]


@pytest.mark.parametrize("frame_ms", [20, 40, 60])
@pytest.mark.parametrize("num_samples", [1, 479, 480, 481, 24_000, 24_001])
def test_opus_holds_every_sample(frame_ms: int, num_samples: int) -> None:
    encoder = create_packet_encoder(AudioFormat(frame_ms=frame_ms, bitrate_bps=64_000))
    samples = tone(num_samples)
    packets = encoder.encode(samples) + encoder.finish()
    decoded = decode(packets, encoder.pre_skip_48k, num_samples)
    assert len(decoded) == num_samples
    if num_samples > 10_000:
        assert np.corrcoef(decoded, samples)[0, 1] > 0.99


@settings(max_examples=25)
@given(pieces=st.lists(st.integers(0, 2000), min_size=1, max_size=10))
@pytest.mark.parametrize("codec", list(Codec))
def test_pieces_make_the_same_packets_as_the_whole(codec: Codec, pieces: list[int]) -> None:
    samples = tone(sum(pieces))
    whole = create_packet_encoder(AudioFormat(codec=codec))
    expected = whole.encode(samples) + whole.finish()
    encoder = create_packet_encoder(AudioFormat(codec=codec))
    packets: list[bytes] = []
    position = 0
    for size in pieces:
        packets += encoder.encode(samples[position : position + size])
        position += size
    assert packets + encoder.finish() == expected


def test_pcm_is_exact_and_its_last_packet_short() -> None:
    encoder = create_packet_encoder(AudioFormat(codec=Codec.PCM_S16LE))
    samples = tone(1000)
    packets = encoder.encode(samples) + encoder.finish()
    assert [len(packet) for packet in packets] == [960, 960, 80]
    values = np.frombuffer(b"".join(packets), "<i2") / 32767
    assert np.abs(values - samples).max() < 1 / 32767


def test_flush_completes_the_packet_with_counted_silence() -> None:
    encoder = create_packet_encoder(AudioFormat(codec=Codec.PCM_S16LE))
    assert encoder.flush() == ([], 0)
    assert encoder.encode(tone(500)) != []
    packets, num_padding = encoder.flush()
    assert (len(packets), num_padding) == (1, 460)
    assert encoder.finish() == []


def test_pcm_at_another_rate_is_refused_by_name() -> None:
    with pytest.raises(Unsupported, match="24000 Hz, not 16000"):
        create_packet_encoder(AudioFormat(codec=Codec.PCM_S16LE, sample_rate_hz=16_000))
