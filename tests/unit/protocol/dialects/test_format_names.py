"""Names of audio formats, vendor by vendor."""

from collections.abc import Callable

import msgspec
import pytest

from voicegate.protocol.dialects.format_names import (
    cartesia_format,
    deepgram_format,
    elevenlabs_format,
    kyutai_format,
    openai_format,
)
from voicegate.protocol.errors import ErrorCode, ProtocolViolation
from voicegate.protocol.formats import Coding, OutputFormat
from voicegate.protocol.messages import Format


@pytest.mark.parametrize(
    ("got", "wanted"),
    [
        (elevenlabs_format("pcm_24000"), OutputFormat()),
        (elevenlabs_format("pcm_8000"), OutputFormat(rate_hz=8_000)),
        (elevenlabs_format("ulaw_8000"), OutputFormat(Coding.MULAW, 8_000)),
        (elevenlabs_format("mp3_22050_32"), OutputFormat(Coding.MP3, 22_050, 32_000)),
        (elevenlabs_format("mp3_44100_128"), OutputFormat(Coding.MP3, 44_100, 128_000)),
        (elevenlabs_format("opus_48000_96"), OutputFormat(Coding.OGG_OPUS, 48_000, 96_000)),
        (cartesia_format("raw", "pcm_f32le", 44_100), OutputFormat(Coding.PCM_F32LE, 44_100)),
        (cartesia_format("wav", "pcm_mulaw", 8_000), OutputFormat(Coding.MULAW, 8_000, is_wav=True)),
        (cartesia_format("mp3", None, 44_100, 128_000), OutputFormat(Coding.MP3, 44_100, 128_000)),
        (deepgram_format("linear16"), OutputFormat()),
        (deepgram_format("linear16", 48_000), OutputFormat(rate_hz=48_000)),
        (deepgram_format("mulaw"), OutputFormat(Coding.MULAW, 8_000)),
        (deepgram_format("linear16", 16_000, container="wav"), OutputFormat(rate_hz=16_000, is_wav=True)),
        (deepgram_format("flac", 16_000), OutputFormat(Coding.FLAC, 16_000)),
        (deepgram_format("mp3", bitrate_bps=32_000), OutputFormat(Coding.MP3, 22_050, 32_000)),
        (openai_format("pcm"), OutputFormat()),
        (openai_format("wav"), OutputFormat(is_wav=True)),
        (openai_format("opus"), OutputFormat(Coding.OGG_OPUS)),
        (kyutai_format("OggOpusMessagePack"), OutputFormat(Coding.OGG_OPUS)),
        (kyutai_format("Pcm"), OutputFormat(Coding.PCM_F32LE)),
    ],
)
def test_a_name_is_a_format(got: OutputFormat, wanted: OutputFormat) -> None:
    assert got == wanted


def test_what_a_session_is_asked_for_is_a_format_of_the_wire() -> None:
    for output in (openai_format("opus"), deepgram_format("opus", bitrate_bps=320_000), openai_format("mp3")):
        assert msgspec.convert(msgspec.to_builtins(output.native), Format) == output.native
    assert openai_format("mp3").native.codec == "pcm_s16le"
    assert elevenlabs_format("opus_48000_128").native == Format(codec="opus", bitrate=128_000)


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda: elevenlabs_format("pcm_1"), "output_format is 'pcm_1'; it must be one of pcm_8000, "),
        (lambda: openai_format("x" * 1000), "response_format is 'xxx"),
        (lambda: cartesia_format("ogg", None, 24_000), "output_format.container is 'ogg'"),
        (lambda: cartesia_format("raw", "opus", 24_000), "output_format.encoding is 'opus'"),
        (lambda: cartesia_format("raw", "pcm_s16le", -5), "output_format.sample_rate is '-5'"),
        (lambda: cartesia_format("mp3", None, 44_100, 1), "output_format.bit_rate is 1; it must be 6000 to 320000"),
        (lambda: deepgram_format("speex"), "encoding is 'speex'; it must be one of linear16, mulaw"),
        (lambda: deepgram_format("linear16", container="ogg"), "container is 'ogg'"),
        (lambda: kyutai_format("opus"), "format is 'opus'; it must be one of Pcm, "),
    ],
)
def test_what_is_no_name_is_told_with_those_that_are(ask: Callable[[], OutputFormat], said: str) -> None:
    with pytest.raises(ProtocolViolation) as caught:
        ask()
    assert caught.value.code is ErrorCode.UNSUPPORTED_FORMAT
    assert caught.value.message.startswith(said)
    assert len(caught.value.message) < 600


@pytest.mark.parametrize(
    ("name", "content_type"),
    [
        ("mp3", "audio/mpeg"),
        ("opus", "audio/ogg"),
        ("aac", "audio/aac"),
        ("flac", "audio/flac"),
        ("wav", "audio/wav"),
        ("pcm", "audio/pcm"),
    ],
)
def test_a_format_has_a_content_type(name: str, content_type: str) -> None:
    assert openai_format(name).content_type == content_type
