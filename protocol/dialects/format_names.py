"""Other vendors' names of forms of audio. Raises ProtocolViolation with the known ones, for a name that is none."""

from collections.abc import Mapping
from typing import Final, TypeVar

from voicegate.protocol.errors import ErrorCode, ProtocolViolation
from voicegate.protocol.formats import NATIVE_RATE_HZ, RATES_HZ, Coding, OutputFormat

T = TypeVar("T")

_ELEVENLABS: Final[Mapping[str, OutputFormat]] = {
    **{f"pcm_{rate}": OutputFormat(Coding.PCM_S16LE, rate) for rate in RATES_HZ},
    **{f"wav_{rate}": OutputFormat(Coding.PCM_S16LE, rate, is_wav=True) for rate in RATES_HZ},
    "ulaw_8000": OutputFormat(Coding.MULAW, 8_000),
    "alaw_8000": OutputFormat(Coding.ALAW, 8_000),
    "mp3_22050_32": OutputFormat(Coding.MP3, 22_050, 32_000),
    "mp3_24000_48": OutputFormat(Coding.MP3, 24_000, 48_000),
    **{f"mp3_44100_{kbps}": OutputFormat(Coding.MP3, 44_100, kbps * 1000) for kbps in (32, 64, 96, 128, 192)},
    **{f"opus_48000_{kbps}": OutputFormat(Coding.OGG_OPUS, 48_000, kbps * 1000) for kbps in (32, 64, 96, 128, 192)},
}
_OPENAI: Final[Mapping[str, OutputFormat]] = {
    "mp3": OutputFormat(Coding.MP3),
    "opus": OutputFormat(Coding.OGG_OPUS),
    "aac": OutputFormat(Coding.AAC),
    "flac": OutputFormat(Coding.FLAC),
    "wav": OutputFormat(is_wav=True),
    "pcm": OutputFormat(),
}
_CARTESIA_RAW: Final[Mapping[str, Coding]] = {
    "pcm_s16le": Coding.PCM_S16LE,
    "pcm_f32le": Coding.PCM_F32LE,
    "pcm_mulaw": Coding.MULAW,
    "pcm_alaw": Coding.ALAW,
}
_DEEPGRAM_RAW: Final[Mapping[str, Coding]] = {
    "linear16": Coding.PCM_S16LE,
    "mulaw": Coding.MULAW,
    "alaw": Coding.ALAW,
}
# Deepgram's choices where no rate is named.
_DEEPGRAM_OTHERS: Final[Mapping[str, OutputFormat]] = {
    "mp3": OutputFormat(Coding.MP3, 22_050, 48_000),
    "opus": OutputFormat(Coding.OGG_OPUS, 48_000),
    "flac": OutputFormat(Coding.FLAC),
    "aac": OutputFormat(Coding.AAC, 22_050, 48_000),
}
_DEEPGRAM_LAW_RATE_HZ: Final = 8_000
_KYUTAI: Final[Mapping[str, OutputFormat]] = {
    "Pcm": OutputFormat(Coding.PCM_F32LE),
    "PcmMessagePack": OutputFormat(Coding.PCM_F32LE),
    "OggOpus": OutputFormat(Coding.OGG_OPUS),
    "OggOpusMessagePack": OutputFormat(Coding.OGG_OPUS),
}
_BITRATES_BPS: Final = range(6_000, 320_001)
_ECHO_CHARS: Final = 80


def elevenlabs_format(name: str) -> OutputFormat:
    """`output_format`: pcm_24000, mp3_44100_128, ulaw_8000..."""
    return _find(_ELEVENLABS, name, "output_format")


def openai_format(name: str) -> OutputFormat:
    """`response_format`, of OpenAI and vLLM-Omni."""
    return _find(_OPENAI, name, "response_format")


def kyutai_format(name: str) -> OutputFormat:
    return _find(_KYUTAI, name, "format")


def cartesia_format(container: str, encoding: str | None, rate_hz: int, bitrate_bps: int | None = None) -> OutputFormat:
    """`output_format`, field by field; `encoding` says nothing for mp3."""
    rate_hz = _rate(rate_hz, "output_format.sample_rate")
    if container == "mp3":
        return OutputFormat(Coding.MP3, rate_hz, _bitrate(bitrate_bps, "output_format.bit_rate"))
    if container not in ("raw", "wav"):
        raise _unknown(container, "output_format.container", ("raw", "wav", "mp3"))
    coding = _find(_CARTESIA_RAW, encoding or "pcm_s16le", "output_format.encoding")
    return OutputFormat(coding, rate_hz, is_wav=container == "wav")


def deepgram_format(
    encoding: str, rate_hz: int | None = None, *, container: str = "none", bitrate_bps: int | None = None
) -> OutputFormat:
    """`encoding`, `sample_rate`, `container` and `bit_rate` of a query."""
    if encoding in _DEEPGRAM_OTHERS:
        usual = _DEEPGRAM_OTHERS[encoding]
        if usual.coding is Coding.FLAC and rate_hz is not None:  # the others have one rate there
            return OutputFormat(usual.coding, _rate(rate_hz, "sample_rate"))
        return OutputFormat(usual.coding, usual.rate_hz, _bitrate(bitrate_bps, "bit_rate") or usual.bitrate_bps)
    if encoding not in _DEEPGRAM_RAW:
        raise _unknown(encoding, "encoding", (*_DEEPGRAM_RAW, *_DEEPGRAM_OTHERS))
    if container not in ("none", "wav"):
        raise _unknown(container, "container", ("none", "wav"))
    usual_hz = NATIVE_RATE_HZ if encoding == "linear16" else _DEEPGRAM_LAW_RATE_HZ
    rate_hz = _rate(usual_hz if rate_hz is None else rate_hz, "sample_rate")
    return OutputFormat(_DEEPGRAM_RAW[encoding], rate_hz, is_wav=container == "wav")


def _find(known: Mapping[str, T], name: str, field: str) -> T:
    if name not in known:
        raise _unknown(name, field, tuple(known))
    return known[name]


def _rate(rate_hz: int, field: str) -> int:
    if rate_hz not in RATES_HZ:
        raise _unknown(str(rate_hz), field, tuple(map(str, RATES_HZ)))
    return rate_hz


def _bitrate(bitrate_bps: int | None, field: str) -> int | None:
    if bitrate_bps is None or bitrate_bps in _BITRATES_BPS:
        return bitrate_bps
    text = f"{field} is {bitrate_bps}; it must be {_BITRATES_BPS[0]} to {_BITRATES_BPS[-1]}"
    raise ProtocolViolation(ErrorCode.UNSUPPORTED_FORMAT, text)


def _unknown(name: str, field: str, known: tuple[str, ...]) -> ProtocolViolation:
    text = f"{field} is {name[:_ECHO_CHARS]!r}; it must be one of {', '.join(known)}"
    return ProtocolViolation(ErrorCode.UNSUPPORTED_FORMAT, text)
