"""The silence around a recording's speech. The LLM goes on as the prompt ends, so with silence it says too little."""

from dataclasses import dataclass
from typing import Final

from voicegate.engine.voices.audio_file import Recording
from voicegate.engine.voices.loudness import FRAMES_A_SECOND, WINDOW_S, loudness_of

KEPT_S: Final = 0.2
# Below the loud parts: quieter than the first lies no speech, louder than the second no silence.
_SPEECH_DB, _SILENCE_DB = 45.0, 25.0
_ABOVE_NOISE_DB: Final = 10.0
_NOISE_SHARE: Final = 0.05  # of the frames, the quietest
# Less than this changes nothing that is heard, and is not worth a word.
_LEAST_S: Final = 0.1
# A click is heard in four frames. Speech begins where most frames of the next fifth of a second are loud.
_RUN_FRAMES, _MIN_LOUD_FRAMES = 10, 6


@dataclass(frozen=True, slots=True)
class Trimmed:
    """The silence that was left out of a recording."""

    start_s: float = 0.0
    end_s: float = 0.0

    def __bool__(self) -> bool:
        return self.start_s > 0 or self.end_s > 0

    def __str__(self) -> str:
        places = {"start": self.start_s, "end": self.end_s}
        told = " and ".join(f"{seconds:.2f} s at the {place}" for place, seconds in places.items() if seconds)
        return f"silence was left out: {told}" if told else ""


NOT_TRIMMED: Final = Trimmed()


def without_silence(recording: Recording) -> tuple[Recording, Trimmed]:
    """About `KEPT_S` of it stay at either end. A recording without loud parts is as it was."""
    if not len(recording.samples):
        return recording, NOT_TRIMMED
    loudness = loudness_of(recording)
    loud_db, noise_db = loudness.loud_db, float(loudness.levels_db.quantile(_NOISE_SHARE))
    threshold_db = min(loud_db - _SILENCE_DB, max(loud_db - _SPEECH_DB, noise_db + _ABOVE_NOISE_DB))
    loud = [bool(is_loud) for is_loud in (loudness.levels_db > threshold_db)]
    first, last = _run_from(loud), len(loud) - 1 - _run_from(loud[::-1])
    if first > last:
        return recording, NOT_TRIMMED
    trimmed = Trimmed(
        start_s=_worth_it(_middle_s(first) - KEPT_S),
        end_s=_worth_it(recording.seconds - _middle_s(last) - KEPT_S),
    )
    start, end = round(trimmed.start_s * recording.rate_hz), round(trimmed.end_s * recording.rate_hz)
    return Recording(recording.samples[start : len(recording.samples) - end], recording.rate_hz), trimmed


def _run_from(loud: list[bool]) -> int:
    """The first frame with which a run of loud ones begins; as many as there are: none does."""
    for number, is_loud in enumerate(loud):
        if is_loud and sum(loud[number : number + _RUN_FRAMES]) >= _MIN_LOUD_FRAMES:
            return number
    return len(loud)


def _worth_it(seconds: float) -> float:
    return seconds if seconds >= _LEAST_S else 0.0


def _middle_s(frame: int) -> float:
    return frame / FRAMES_A_SECOND + WINDOW_S / 2
