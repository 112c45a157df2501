"""The first packet of an utterance, made in the engine's thread: it need not go to an encoder process and back.

The process makes them too, and what it answers is dropped: its encoder stands where the listener's decoder does then,
and the stream is the same to the byte. Bounded, so that many new requests do not keep the engine's thread.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final

from voicegate.engine import units
from voicegate.engine.audio.encoding import Answer, Encoded, Encoders, Encoding, TellFailure
from voicegate.engine.audio.opus import OpusEncoder
from voicegate.engine.audio.packets import Samples
from voicegate.engine.interface import AudioFormat, Codec

# A packet takes 0.1 ms. Lower -> more new requests go the long way, 1 ms; higher -> a burst of them is felt in speech.
_STARTS_PER_S: Final = 100.0
_STARTS_AT_ONCE: Final = 4


class HeadStarts:
    """Implements Encoders, over those that make everything else."""

    def __init__(self, encoders: Encoders, clock: Callable[[], float]) -> None:
        self.encoders = encoders
        self._clock = clock
        self._left = float(_STARTS_AT_ONCE)
        self._counted_s = clock()
        # One for each bitrate that clients choose lately: a start is encoded in one go, and the next begins anew.
        self._encoder_of = lru_cache(maxsize=16)(lambda bitrate_bps: OpusEncoder(bitrate_bps=bitrate_bps))

    @property
    def unready_reason(self) -> str | None:
        return self.encoders.unready_reason

    @property
    def counters(self) -> Mapping[str, float]:
        return self.encoders.counters

    def open(self, audio: AudioFormat) -> Encoding:
        encoding = self.encoders.open(audio)
        return HeadStart(self, encoding, audio) if audio.codec is Codec.OPUS else encoding

    def close(self) -> None:
        self.encoders.close()

    def start(self, audio: AudioFormat, samples: Samples) -> tuple[bytes, ...] | None:
        """The packets that a new stream's first samples [n] complete. None: there were enough starts just now."""
        now_s = self._clock()
        self._left = min(self._left + (now_s - self._counted_s) * _STARTS_PER_S, _STARTS_AT_ONCE)
        self._counted_s = now_s
        if self._left < 1:
            return None
        self._left -= 1
        encoder = self._encoder_of(audio.bitrate_bps)
        encoder.reset()
        size = units.ms_to_samples(audio.frame_ms)
        return tuple(encoder.encode(samples[end - size : end]) for end in range(size, len(samples) + 1, size))


class HeadStart:
    """Implements Encoding."""

    def __init__(self, starts: HeadStarts, encoding: Encoding, audio: AudioFormat) -> None:
        self._starts = starts
        self._encoding = encoding
        self._audio = audio
        self._has_begun = False

    def on_failure(self, tell: TellFailure) -> None:
        self._encoding.on_failure(tell)

    def encode(self, samples: Samples, answer: Answer) -> None:
        packets = None if self._has_begun else self._starts.start(self._audio, samples)
        self._has_begun = True
        if packets is None:
            self._encoding.encode(samples, answer)
            return
        answer(Encoded(packets, len(samples)))  # before the process is woken, which takes longer than to make them
        self._encoding.encode(samples, _drop)

    def flush(self, answer: Answer) -> None:
        self._encoding.flush(answer)

    def finish(self, answer: Answer) -> None:
        self._encoding.finish(answer)

    def close(self) -> None:
        self._encoding.close()


def _drop(_: Encoded) -> None:
    """These packets have left already."""
