"""Samples that stay samples: other rates, 32-bit floats, G.711; and the header that makes a WAV file of them."""

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Final, Literal

import av
import numpy as np
import numpy.typing as npt

from voicegate.protocol.formats import NATIVE_RATE_HZ, Coding, OutputFormat

Pcm = npt.NDArray[np.int16]

_BYTES_PER_SAMPLE: Final = {Coding.PCM_S16LE: 2, Coding.PCM_F32LE: 4, Coding.MULAW: 1, Coding.ALAW: 1}
# RIFF's numbers of codings: Microsoft's mmreg.h.
_WAVE_TAGS: Final = {Coding.PCM_S16LE: 1, Coding.PCM_F32LE: 3, Coding.ALAW: 6, Coding.MULAW: 7}
# A stream does not know its length; players and ffmpeg take this for "until the end".
_UNKNOWN_BYTES: Final = 0xFFFFFFFF
_MAX_INT16: Final = 32_768


class Resampler:
    """libswresample: no delay at the start; up to 2 ms wait until more comes or `finish`; the length is exact.

    `frame_samples`: of each frame but the last; 0: as it comes.
    """

    def __init__(
        self, rate_hz: int, sample_format: Literal["s16", "flt", "s16p", "fltp"] = "s16", frame_samples: int = 0
    ) -> None:
        self._resampler = av.AudioResampler(sample_format, "mono", rate_hz, frame_samples or None)

    def feed(self, pcm: bytes) -> list[av.AudioFrame]:
        return self._resampler.resample(frame_of(pcm)) if pcm else []

    def finish(self) -> list[av.AudioFrame]:
        return self._resampler.resample(None)


class NativeEncoder:
    """Passes on packets as the engine makes them."""

    def feed(self, pcm: bytes) -> bytes:
        return pcm

    def finish(self) -> bytes:
        return b""


class PcmEncoder:
    """16-bit samples at another rate, and what `companding` makes of them."""

    def __init__(self, rate_hz: int, companding: Callable[[Pcm], bytes] | None = None) -> None:
        self._resampler = Resampler(rate_hz)
        self._companding = companding or _little_endian

    def feed(self, pcm: bytes) -> bytes:
        return self._pack(self._resampler.feed(pcm))

    def finish(self) -> bytes:
        return self._pack(self._resampler.finish())

    def _pack(self, frames: list[av.AudioFrame]) -> bytes:
        return b"".join(self._companding(frame.to_ndarray()[0]) for frame in frames)


class FloatEncoder:
    """32-bit floats in [-1, 1]."""

    def __init__(self, rate_hz: int) -> None:
        self._resampler = Resampler(rate_hz, "flt")

    def feed(self, pcm: bytes) -> bytes:
        return self._pack(self._resampler.feed(pcm))

    def finish(self) -> bytes:
        return self._pack(self._resampler.finish())

    def _pack(self, frames: list[av.AudioFrame]) -> bytes:
        return b"".join(frame.to_ndarray()[0].astype("<f4").tobytes() for frame in frames)


def frame_of(pcm: bytes) -> av.AudioFrame:
    frame = av.AudioFrame.from_ndarray(np.frombuffer(pcm, "<i2")[np.newaxis], format="s16", layout="mono")
    frame.sample_rate = NATIVE_RATE_HZ
    return frame


def mulaw(samples: Pcm) -> bytes:
    return _companded(samples, "pcm_mulaw")


def alaw(samples: Pcm) -> bytes:
    return _companded(samples, "pcm_alaw")


def wav_header(output: OutputFormat) -> bytes:
    """A WAV header for raw samples whose number is not known. Raises KeyError for a format that is not raw."""
    num_bytes = _BYTES_PER_SAMPLE[output.coding]
    tag = _WAVE_TAGS[output.coding]
    rate_hz = output.rate_hz
    fmt = struct.pack("<HHIIHH", tag, 1, rate_hz, rate_hz * num_bytes, num_bytes, 8 * num_bytes)
    chunk = b"fmt " + struct.pack("<I", len(fmt)) + fmt
    return b"RIFF" + struct.pack("<I", _UNKNOWN_BYTES) + b"WAVE" + chunk + b"data" + struct.pack("<I", _UNKNOWN_BYTES)


def _little_endian(samples: Pcm) -> bytes:
    return samples.astype("<i2", copy=False).tobytes()


def _companded(samples: Pcm, codec: Literal["pcm_mulaw", "pcm_alaw"]) -> bytes:
    return _law_table(codec)[samples.astype(np.int32) + _MAX_INT16].tobytes()


@lru_cache
def _law_table(codec: Literal["pcm_mulaw", "pcm_alaw"]) -> npt.NDArray[np.uint8]:
    """One byte for each 16-bit sample, lowest first: FFmpeg's, asked once."""
    encoder = av.AudioCodecContext.create(codec, "w")
    encoder.sample_rate = NATIVE_RATE_HZ
    encoder.layout = "mono"
    encoder.format = "s16"
    every_sample = np.arange(-_MAX_INT16, _MAX_INT16, dtype="<i2")
    packets = [*encoder.encode(frame_of(every_sample.tobytes())), *encoder.encode(None)]
    return np.frombuffer(b"".join(bytes(packet) for packet in packets), np.uint8)
