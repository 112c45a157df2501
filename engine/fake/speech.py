"""Speech of one utterance of the FakeEngine: text -> tones -> packets, and where to split it. No clock, no asyncio."""

import re
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from voicegate.engine import units
from voicegate.engine.audio.packets import PacketEncoder, Samples
from voicegate.engine.interface import (
    AlignedText,
    Alignment,
    AudioReady,
    EngineEvent,
    Flushed,
    UtteranceRequest,
    VoiceInfo,
)

_WORD: Final = re.compile(r"\S+")
VOICES: Final = (VoiceInfo("hum", "A sine tone"), VoiceInfo("drone", "A sine tone an octave lower"))


def tone_hz(number: int, voice: str = VOICES[0].name) -> float:
    """Pitch of the `number`th submitted utterance."""
    return (300.0 + 60.0 * (number % 20)) * (0.5 if voice == "drone" else 1.0)


@dataclass(slots=True)
class FakeSpeech:
    """Only letters and digits sound, each as long; a word is speakable once its end is known."""

    request: UtteranceRequest
    number: int
    encoder: PacketEncoder
    text: str = ""
    num_speakable: int = 0  # characters that may be spoken without waiting for more
    num_flushed: int = 0  # characters that stood before the last flush
    is_ended: bool = False
    flushes: deque[tuple[int, str]] = field(default_factory=deque)  # characters before it, id
    ends: list[int] = field(default_factory=list)  # per character spoken: its end in samples
    num_told: int = 0  # characters up to the end of the last word whose time was told
    num_samples: int = 0
    num_packets: int = 0

    @property
    def num_spoken(self) -> int:
        return len(self.ends)

    @property
    def has_work(self) -> bool:
        return self.is_ended or bool(self.flushes) or self.num_spoken < self.num_speakable

    @property
    def is_finished(self) -> bool:
        return self.is_ended and not self.flushes and self.num_spoken == self.num_speakable

    @property
    def is_at_rest(self) -> bool:
        """Its writer is never taken to have paused."""
        return 0 < self.num_flushed == len(self.text) and not self.has_work

    @property
    def audio_ms(self) -> int:
        return units.samples_to_ms(self.num_samples)

    @property
    def end_pts_48k(self) -> int:
        return self.encoder.pre_skip_48k * bool(self.num_packets) + self.num_samples * units.OPUS_CLOCK_PER_SAMPLE

    # --- text ---------------------------------------------------------------------------------------------

    def push(self, text: str) -> None:
        before = len(self.text)
        self.text += text
        last_space = next((i for i in range(len(text) - 1, -1, -1) if text[i].isspace()), None)
        if last_space is not None:
            self.num_speakable = before + last_space + 1

    def flush(self, flush_id: str) -> None:
        self.num_speakable = self.num_flushed = len(self.text)
        self.flushes.append((len(self.text), flush_id))

    def end(self) -> None:
        self.num_speakable = len(self.text)
        self.is_ended = True

    def split(self, played_ms: int | None) -> tuple[str, str]:
        """Split the text at the audio made, or played if that is less; a character counts once all of it was."""
        num_samples = self.num_samples
        if played_ms is not None:
            num_samples = min(num_samples, units.ms_to_samples(played_ms))
        num_spoken = bisect_right(self.ends, num_samples) if num_samples else 0
        return self.text[:num_spoken], self.text[num_spoken:]

    # --- audio --------------------------------------------------------------------------------------------

    def speak(self, *, chunk_ms: int, ms_per_character: int) -> list[EngineEvent]:
        """The next thing that is due: the answer to a flush, or up to about `chunk_ms` of audio."""
        if self.flushes and self.flushes[0][0] <= self.num_spoken:
            return self._answer_flush()
        num_samples = 0
        stop = min([self.num_speakable] + [position for position, _ in self.flushes])
        while self.num_spoken < stop and num_samples < units.ms_to_samples(chunk_ms):
            if self.text[self.num_spoken].isalnum():
                num_samples += units.ms_to_samples(ms_per_character)
            self.ends.append(self.num_samples + num_samples)
        if not num_samples:
            return []
        words = tuple(self._words_begun(stop, ms_per_character))
        packets = self._packets_of(self._tone(num_samples))
        told: list[EngineEvent] = [Alignment(self.request.utterance_id, words, estimated=True)] if words else []
        return [*told, *packets]

    def _words_begun(self, stop: int, ms_per_character: int) -> Iterator[AlignedText]:
        """Whole words before `stop` that have begun and were not told yet, as real engines tell them."""
        for word in _WORD.finditer(self.text, self.num_told, stop):
            sounds = [place for place in range(*word.span()) if self.text[place].isalnum()]
            if not sounds:
                continue
            if sounds[0] >= self.num_spoken:
                return
            self.num_told = word.end()
            start_ms = units.samples_to_ms(self.ends[sounds[0]]) - ms_per_character
            yield AlignedText(word.group(), start_ms, start_ms + len(sounds) * ms_per_character, *word.span())

    def finish(self) -> list[EngineEvent]:
        """The rest in the encoder."""
        return self._audio_ready(self.encoder.finish())

    def _answer_flush(self) -> list[EngineEvent]:
        # A flush delivers whole packets, so what does not fill one is filled with silence.
        _, flush_id = self.flushes.popleft()
        frame = units.ms_to_samples(self.request.audio.frame_ms)
        packets = self._packets_of(np.zeros(-self.num_samples % frame, np.float32))
        return [*packets, Flushed(self.request.utterance_id, flush_id, self.audio_ms)]

    def _tone(self, num_samples: int) -> Samples:
        times = np.arange(self.num_samples, self.num_samples + num_samples) / units.SAMPLE_RATE_HZ
        pitch = tone_hz(self.number, self.request.voice)
        return (0.4 * np.sin(2 * np.pi * pitch * times)).astype(np.float32)

    def _packets_of(self, samples: Samples) -> list[EngineEvent]:
        self.num_samples += len(samples)
        return self._audio_ready(self.encoder.encode(samples))

    def _audio_ready(self, packets: list[bytes]) -> list[EngineEvent]:
        if not packets:
            return []
        pts_48k = self.num_packets * self.request.audio.frame_ms * units.OPUS_CLOCK_HZ // 1000
        self.num_packets += len(packets)
        return [AudioReady(self.request.utterance_id, tuple(packets), pts_48k)]
