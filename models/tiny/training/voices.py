"""The voices that are taught: a number (what the models know them by) and, for Kokoro-82M, a style file."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class TaughtVoice:
    number: int
    style: str | None  # None: hibari's one voice
    description: str


VOICES: Final = {
    "woman": TaughtVoice(0, None, "female, US English"),
    "man": TaughtVoice(1, "am_michael.bin", "male, US English"),
}
