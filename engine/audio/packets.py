"""Samples -> packets of one utterance: Opus through libopus, or 16-bit PCM. One encoder lives as long as its utterance.

Packets hold exactly `frame_ms` of audio; what does not fill one waits. `finish` pads the last Opus packet with
silence (and drains the encoder's delay); the exact end is `end_pts_48k`, which players trim to (RFC 7845).
"""

from functools import lru_cache
from typing import Protocol

import numpy as np
import numpy.typing as npt

from voicegate.engine import units
from voicegate.engine.audio.opus import OpusEncoder
from voicegate.engine.interface import AudioFormat, Codec, Unsupported

Samples = npt.NDArray[np.float32]


class PacketEncoder(Protocol):
    pre_skip_48k: int  # 48 kHz samples of encoder delay at the start of the decoded audio

    def encode(self, samples: Samples) -> list[bytes]:
        """Take float32 samples in [-1, 1] at SAMPLE_RATE_HZ; return the packets that they complete."""

    def flush(self) -> tuple[list[bytes], int]:
        """Complete the packet that is begun, if any, with silence; return it and the samples of silence added."""

    def finish(self) -> list[bytes]:
        """The rest; nothing of no samples. The encoder takes no more."""


class OpusPacketEncoder:
    def __init__(self, audio: AudioFormat) -> None:
        self._encoder = OpusEncoder(bitrate_bps=audio.bitrate_bps)
        self._framer = _Framer(audio.frame_ms)
        self.pre_skip_48k = self._encoder.lookahead_samples * units.OPUS_CLOCK_PER_SAMPLE
        self._has_samples = False

    def encode(self, samples: Samples) -> list[bytes]:
        self._has_samples = self._has_samples or len(samples) > 0
        return [self._encoder.encode(frame) for frame in self._framer.push(samples)]

    def flush(self) -> tuple[list[bytes], int]:
        padding = self._framer.num_missing
        return self.encode(np.zeros(padding, np.float32)), padding

    def finish(self) -> list[bytes]:
        if not self._has_samples:
            return []
        # The decoder's output lags by the encoder's delay: the last samples need that much silence behind them.
        lag = np.zeros(self._encoder.lookahead_samples, np.float32)
        packets = self.encode(lag)
        return packets + self.flush()[0]


class PcmPacketEncoder:
    pre_skip_48k = 0

    def __init__(self, audio: AudioFormat) -> None:
        self._framer = _Framer(audio.frame_ms)

    def encode(self, samples: Samples) -> list[bytes]:
        return [_to_s16le(frame) for frame in self._framer.push(samples)]

    def flush(self) -> tuple[list[bytes], int]:
        padding = self._framer.num_missing
        return self.encode(np.zeros(padding, np.float32)), padding

    def finish(self) -> list[bytes]:
        rest = self._framer.take_rest()
        return [_to_s16le(rest)] if len(rest) else []


def create_packet_encoder(audio: AudioFormat) -> PacketEncoder:
    """Raises Unsupported for a format that this build cannot make."""
    match audio.codec:
        case Codec.OPUS:
            return OpusPacketEncoder(audio)
        case Codec.PCM_S16LE:
            if audio.sample_rate_hz != units.SAMPLE_RATE_HZ:
                raise Unsupported(f"pcm_s16le comes at {units.SAMPLE_RATE_HZ} Hz, not {audio.sample_rate_hz}")
            return PcmPacketEncoder(audio)


# Clients choose formats, so the cache has a bound.
@lru_cache(maxsize=256)
def pre_skip_48k(audio: AudioFormat) -> int:
    """48 kHz samples of encoder delay at the start of the decoded audio. Raises Unsupported, as an encoder would."""
    return create_packet_encoder(audio).pre_skip_48k


class _Framer:
    """Cuts samples into packets' worth; what does not fill one waits."""

    def __init__(self, frame_ms: int) -> None:
        self._size = units.ms_to_samples(frame_ms)
        self._pending = np.zeros(0, np.float32)

    @property
    def num_missing(self) -> int:
        """Samples that would complete the packet begun; 0 where none is begun."""
        return -len(self._pending) % self._size

    def push(self, samples: Samples) -> list[Samples]:
        self._pending = np.concatenate((self._pending, samples))
        num_whole = len(self._pending) // self._size
        frames = [self._pending[i * self._size : (i + 1) * self._size] for i in range(num_whole)]
        self._pending = self._pending[num_whole * self._size :]
        return frames

    def take_rest(self) -> Samples:
        rest, self._pending = self._pending, np.zeros(0, np.float32)
        return rest


def _to_s16le(samples: Samples) -> bytes:
    pcm: bytes = np.clip(np.rint(samples * 32767.0), -32768, 32767).astype("<i2").tobytes()
    return pcm
