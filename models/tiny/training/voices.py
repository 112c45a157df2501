"""The voices that are taught: a number (what the models know them by) and, for Kokoro-82M, a style file."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class TaughtVoice:
    number: int
    style: str | None  # None: hibari's one voice
    description: str
    prompt: str  # what it says in the recording that the model is conditioned on
    old_name: str  # which the shipped model has for a voice of this kind; for one version it is another name of this


VOICES: Final = {
    "woman": TaughtVoice(0, None, "female, US English", "Hello there, it is very nice to meet you.", "slt"),
    "man": TaughtVoice(
        1, "am_liam.bin", "male, US English", "Seven brown horses were sleeping under the bridge.", "rms"
    ),
}
