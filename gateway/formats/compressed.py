"""MP3, AAC and FLAC by FFmpeg's encoders, without its containers: those hold bytes back, and go back to them."""

import struct
from fractions import Fraction
from typing import Final, Literal

import av

from voicegate.gateway.formats.raw import Resampler

# LAME's effort, 0 to 9: lower takes up to five times as long and is no better for speech, above 7 nothing is gained.
_MP3_EFFORT: Final = "7"
# FLAC's: with 0 a frame is 24 ms of audio, with 5 it is 96, which are held back until it is full.
_FLAC_EFFORT: Final = "0"
_SPEECH_BPS: Final = 64_000
# ISO/IEC 14496-3 table 1.18: the index is what an ADTS header holds.
_ADTS_RATES_HZ: Final = (96_000, 88_200, 64_000, 48_000, 44_100, 32_000, 24_000, 22_050, 16_000, 12_000, 11_025, 8_000)
_ADTS_HEADER_BYTES: Final = 7
_FLAC_STREAMINFO_IS_LAST: Final = 0x80


class _FfmpegStream:
    """Samples, cut into the codec's frames; packets leave as they are made."""

    def __init__(
        self,
        codec: Literal["libmp3lame", "aac", "flac"],
        sample_format: Literal["s16", "s16p", "fltp"],
        rate_hz: int,
        *,
        bitrate_bps: int = 0,
        options: dict[str, str] | None = None,
    ) -> None:
        self._codec = av.AudioCodecContext.create(codec, "w")
        self._codec.sample_rate = rate_hz
        self._codec.layout = "mono"
        self._codec.format = sample_format
        self._codec.bit_rate = bitrate_bps
        self._codec.time_base = Fraction(1, rate_hz)
        self._codec.options = options or {}
        self._codec.open()
        self._resampler = Resampler(rate_hz, sample_format, self._codec.frame_size)

    @property
    def extradata(self) -> bytes:
        return self._codec.extradata or b""

    def feed(self, pcm: bytes) -> list[bytes]:
        return self._encode(self._resampler.feed(pcm))

    def finish(self) -> list[bytes]:
        whole = self._encode(self._resampler.finish())
        return whole + [bytes(packet) for packet in self._codec.encode(None)]

    def _encode(self, frames: list[av.AudioFrame]) -> list[bytes]:
        return [bytes(packet) for frame in frames for packet in self._codec.encode(frame)]


class Mp3Encoder:
    """Frames stand for themselves: the bit reservoir is off."""

    def __init__(self, rate_hz: int, bitrate_bps: int | None) -> None:
        options = {"compression_level": _MP3_EFFORT, "reservoir": "0"}
        self._stream = _FfmpegStream(
            "libmp3lame", "s16p", rate_hz, bitrate_bps=bitrate_bps or _SPEECH_BPS, options=options
        )

    def feed(self, pcm: bytes) -> bytes:
        return b"".join(self._stream.feed(pcm))

    def finish(self) -> bytes:
        return b"".join(self._stream.finish())


class AacEncoder:
    """AAC-LC in ADTS frames (ISO/IEC 14496-3 section 1.A.2)."""

    def __init__(self, rate_hz: int, bitrate_bps: int | None) -> None:
        self._rate_index = _ADTS_RATES_HZ.index(rate_hz)
        self._stream = _FfmpegStream("aac", "fltp", rate_hz, bitrate_bps=bitrate_bps or _SPEECH_BPS)

    def feed(self, pcm: bytes) -> bytes:
        return b"".join(map(self._framed, self._stream.feed(pcm)))

    def finish(self) -> bytes:
        return b"".join(map(self._framed, self._stream.finish()))

    def _framed(self, packet: bytes) -> bytes:
        num_bytes = _ADTS_HEADER_BYTES + len(packet)
        header = 0xFFF1 << 40  # sync word, MPEG-4, no checksum
        header |= 1 << 38  # AAC-LC
        header |= self._rate_index << 34
        header |= 1 << 30  # one channel
        header |= num_bytes << 13
        header |= 0x7FF << 2  # the rate varies
        return header.to_bytes(_ADTS_HEADER_BYTES, "big") + packet


class FlacEncoder:
    """Native FLAC; its header names no length (RFC 9639 section 8.2: zeros are unknown)."""

    def __init__(self, rate_hz: int) -> None:
        self._stream = _FfmpegStream("flac", "s16", rate_hz, options={"compression_level": _FLAC_EFFORT})
        streaminfo = self._stream.extradata
        self._header = b"fLaC" + struct.pack(">I", _FLAC_STREAMINFO_IS_LAST << 24 | len(streaminfo)) + streaminfo

    def feed(self, pcm: bytes) -> bytes:
        return self._take_header() + b"".join(self._stream.feed(pcm))

    def finish(self) -> bytes:
        return self._take_header() + b"".join(self._stream.finish())

    def _take_header(self) -> bytes:
        header, self._header = self._header, b""
        return header
