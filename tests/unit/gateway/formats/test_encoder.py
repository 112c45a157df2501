"""Stream encoders: what FFmpeg's decoders make of their output is the audio that went in, however it was split."""

import io
import wave
from collections.abc import Sequence

import av
import numpy as np
import numpy.typing as npt
import pytest

from voicegate.engine.audio.packets import create_packet_encoder
from voicegate.engine.interface import AudioFormat, Codec
from voicegate.gateway.formats.encoder import StreamEncoder
from voicegate.protocol.dialects.format_names import elevenlabs_format
from voicegate.protocol.formats import NATIVE_RATE_HZ, RATES_HZ, Coding, OutputFormat

Samples = npt.NDArray[np.float64]
NUM_SAMPLES = 2 * NATIVE_RATE_HZ + 77  # no whole number of packets or frames
TONE_HZ = 440.0
AMPLITUDE = 8000.0
PACKET_BYTES = 960


def tone(rate_hz: int = NATIVE_RATE_HZ, num_samples: int = NUM_SAMPLES) -> Samples:
    return AMPLITUDE * np.sin(2 * np.pi * TONE_HZ * np.arange(num_samples) / rate_hz)


PCM = np.rint(tone()).astype("<i2").tobytes()


def packets_of(pcm: bytes, size: int = PACKET_BYTES) -> list[bytes]:
    return [pcm[at : at + size] for at in range(0, len(pcm), size)]


def encode(output: OutputFormat, packets: Sequence[bytes], packets_a_time: int = 1) -> bytes:
    encoder = StreamEncoder(output, pre_skip_48k=0)
    parts = [encoder.feed(packets[at : at + packets_a_time]) for at in range(0, len(packets), packets_a_time)]
    return b"".join([*parts, encoder.finish(0)])


def decode(file: bytes) -> tuple[int, Samples]:
    """Rate, and samples of 16 bits."""
    with av.open(io.BytesIO(file)) as container:
        stream = container.streams.audio[0]
        resampler = av.AudioResampler("s16", "mono", stream.rate)
        frames = [out for frame in container.decode(stream) for out in resampler.resample(frame)]
        samples = np.concatenate([frame.to_ndarray()[0] for frame in frames]).astype(np.float64)
        return stream.rate, samples


def snr_db(got: Samples, wanted: Samples) -> float:
    length = min(len(got), len(wanted))
    noise = got[:length] - wanted[:length]
    return float(10 * np.log10((wanted[:length] ** 2).mean() / (noise**2).mean()))


def tone_snr_db(samples: Samples, rate_hz: int) -> float:
    """Signal-to-noise of the tone at any phase, in the middle of the samples: an encoder may have delayed them."""
    middle = samples[len(samples) // 4 : 3 * len(samples) // 4]
    phase = 2 * np.pi * TONE_HZ * np.arange(len(middle)) / rate_hz
    basis = np.stack([np.sin(phase), np.cos(phase)])
    fitted = np.linalg.lstsq(basis.T, middle, rcond=None)[0] @ basis
    return snr_db(fitted, middle) if (middle - fitted).any() else np.inf


def test_native_samples_pass_as_they_are() -> None:
    assert encode(OutputFormat(), packets_of(PCM)) == PCM


@pytest.mark.parametrize("rate_hz", RATES_HZ)
def test_another_rate_has_the_exact_length_and_the_same_tone(rate_hz: int) -> None:
    out = np.frombuffer(encode(OutputFormat(rate_hz=rate_hz), packets_of(PCM)), "<i2").astype(np.float64)
    assert len(out) == -(-NUM_SAMPLES * rate_hz // NATIVE_RATE_HZ)
    assert snr_db(out[:-100], tone(rate_hz, len(out))[:-100]) > 60, "in time from the first sample on"


@pytest.mark.parametrize("coding", [Coding.PCM_S16LE, Coding.PCM_F32LE, Coding.MULAW, Coding.MP3, Coding.FLAC])
def test_how_audio_is_split_changes_nothing(coding: Coding) -> None:
    output = OutputFormat(coding, 22_050)
    whole = encode(output, [PCM])
    assert encode(output, packets_of(PCM)) == whole
    assert encode(output, packets_of(PCM), packets_a_time=7) == whole
    assert encode(output, packets_of(PCM, size=2 * 331)) == whole


@pytest.mark.parametrize("rate_hz", [8_000, 24_000])
def test_floats_are_the_samples_in_one(rate_hz: int) -> None:
    out = np.frombuffer(encode(OutputFormat(Coding.PCM_F32LE, rate_hz), packets_of(PCM)), "<f4").astype(np.float64)
    assert snr_db(out[:-100] * 32768, tone(rate_hz, len(out))[:-100]) > 60


@pytest.mark.parametrize(("coding", "decoder"), [(Coding.MULAW, "pcm_mulaw"), (Coding.ALAW, "pcm_alaw")])
def test_g711_is_what_its_decoder_reads(coding: Coding, decoder: str) -> None:
    out = encode(OutputFormat(coding, 8_000), packets_of(PCM))
    codec = av.AudioCodecContext.create(decoder, "r")
    codec.sample_rate, codec.layout = 8_000, "mono"
    heard = np.concatenate([frame.to_ndarray()[0] for frame in codec.decode(av.Packet(out))]).astype(np.float64)
    assert len(heard) == -(-NUM_SAMPLES // 3)
    assert snr_db(heard[:-100], tone(8_000, len(heard))[:-100]) > 30, "what 8 bits of G.711 give"


def test_g711_of_silence_and_of_the_loudest() -> None:
    loudest = np.array([0, 32767, -32768], "<i2").tobytes()
    assert encode(OutputFormat(Coding.MULAW), [loudest]) == b"\xff\x80\x00"
    assert encode(OutputFormat(Coding.ALAW), [loudest]) == b"\xd5\xaa\x2a"


def test_wav_says_what_follows() -> None:
    file = encode(OutputFormat(rate_hz=16_000, is_wav=True), packets_of(PCM))
    with wave.open(io.BytesIO(file)) as reader:
        assert (reader.getframerate(), reader.getnchannels(), reader.getsampwidth()) == (16_000, 1, 2)
        assert reader.readframes(10**6) == encode(OutputFormat(rate_hz=16_000), packets_of(PCM))


@pytest.mark.parametrize("coding", [Coding.PCM_F32LE, Coding.MULAW, Coding.ALAW])
def test_wav_of_every_coding_is_read(coding: Coding) -> None:
    rate_hz, samples = decode(encode(OutputFormat(coding, 8_000, is_wav=True), packets_of(PCM)))
    assert rate_hz == 8_000
    assert len(samples) == -(-NUM_SAMPLES // 3)
    assert tone_snr_db(samples, rate_hz) > 30


@pytest.mark.parametrize(
    "output",
    [
        OutputFormat(Coding.MP3, 22_050, 32_000),
        OutputFormat(Coding.MP3, 44_100, 128_000),
        OutputFormat(Coding.MP3),
        OutputFormat(Coding.MP3, 8_000, 6_000),
        OutputFormat(Coding.AAC),
        OutputFormat(Coding.AAC, 22_050, 320_000),
        OutputFormat(Coding.FLAC),
        OutputFormat(Coding.FLAC, 48_000),
    ],
    ids=str,
)
def test_compressed_audio_is_read(output: OutputFormat) -> None:
    rate_hz, samples = decode(encode(output, packets_of(PCM)))
    assert rate_hz == output.rate_hz
    expected = NUM_SAMPLES * rate_hz / NATIVE_RATE_HZ
    assert expected <= len(samples) + 1 < expected + 0.35 * rate_hz, "nothing is lost; encoders add their delay"
    assert tone_snr_db(samples, rate_hz) > 20


def test_flac_loses_nothing() -> None:
    _, samples = decode(encode(OutputFormat(Coding.FLAC), packets_of(PCM)))
    np.testing.assert_array_equal(samples, np.frombuffer(PCM, "<i2"))


def test_compressed_audio_leaves_as_it_is_made() -> None:
    for output in (OutputFormat(Coding.MP3), OutputFormat(Coding.AAC), OutputFormat(Coding.FLAC)):
        encoder = StreamEncoder(output, pre_skip_48k=0)
        num_bytes = [len(encoder.feed([packet])) for packet in packets_of(PCM)]
        assert sum(num_bytes[:8]) > 150, "within 160 ms"
        assert all(sum(num_bytes[at : at + 4]) for at in range(8, len(num_bytes) - 4)), "and in every 80 ms"


def test_ogg_opus_is_the_engines_own_packets() -> None:
    output = elevenlabs_format("opus_48000_64")
    assert (output.native.codec, output.native.bitrate) == ("opus", 64_000)
    opus = create_packet_encoder(AudioFormat(codec=Codec.OPUS, bitrate_bps=64_000))
    samples = (tone() / 32768).astype(np.float32)
    packets = [*opus.encode(samples), *opus.finish()]
    encoder = StreamEncoder(output, pre_skip_48k=opus.pre_skip_48k)
    pages = [encoder.feed(packets[at : at + 5]) for at in range(0, len(packets), 5)]
    assert all(page.startswith(b"OggS") for page in pages), "each call leaves what there is"
    rate_hz, heard = decode(b"".join(pages) + encoder.finish(opus.pre_skip_48k + 2 * NUM_SAMPLES))
    assert rate_hz == 48_000
    assert abs(len(heard) - 2 * NUM_SAMPLES) <= 2 * NATIVE_RATE_HZ // 50
    assert tone_snr_db(heard, rate_hz) > 15


@pytest.mark.parametrize("coding", [c for c in Coding if c is not Coding.OGG_OPUS])
def test_a_stream_without_audio_ends_in_peace(coding: Coding) -> None:
    encoder = StreamEncoder(OutputFormat(coding), pre_skip_48k=0)
    assert len(encoder.feed([]) + encoder.finish(0)) < 1000


def test_an_ogg_stream_without_audio_is_a_file() -> None:
    encoder = StreamEncoder(OutputFormat(Coding.OGG_OPUS), pre_skip_48k=312)
    assert encoder.finish(0).count(b"OggS") == 3
