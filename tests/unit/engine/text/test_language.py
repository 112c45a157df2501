"""The script's part in the choice of language, and the hint's."""

import pytest

from tests.unit.engine.text.cases import cases
from voicegate.engine.text.language import base_language, detect_language, recorded_language

CASES = cases("language")


@pytest.mark.parametrize(
    ("text", "hint", "language"),
    CASES["languages"],
)
def test_languages(text: str, hint: str, language: str) -> None:
    assert detect_language(text, hint) == language


@pytest.mark.parametrize(("tag", "base"), [("en", "en"), ("EN-gb", "en"), ("zh_CN", "zh"), ("", "")])
def test_base_languages(tag: str, base: str) -> None:
    assert base_language(tag) == base


@pytest.mark.parametrize(
    ("transcript", "language"),
    [
        ("Guten Tag, ich bin Ihre Stimme für heute.", "de"),
        ("The birch canoe slid on the smooth planks.", "en"),
        ("Hola, me alegro mucho de que estés aquí.", "es"),
        ("Bonjour, je suis très heureux de vous parler.", "fr"),
        ("Buongiorno, sono molto felice di parlarti.", "it"),
        ("Привет, как дела?", "ru"),
        ("希望你以后能够做的比我还好呦。", "zh"),
        ("こんにちは。", "ja"),
        ("안녕하세요", "ko"),
        ("Oh!", "en"),
        ("สวัสดี", None),
        (" ", None),
    ],
)
def test_a_transcript_tells_its_recordings_language(transcript: str, language: str | None) -> None:
    languages = ("en", "zh", "yue", "ja", "ko", "de", "es", "fr", "it", "ru")
    assert recorded_language(transcript, languages) == language


def test_a_recording_is_of_a_language_that_the_model_speaks() -> None:
    assert recorded_language("Guten Tag, ich bin Ihre Stimme für heute.", ("en", "zh")) == "en"
    assert recorded_language("Привет", ("en", "zh")) is None
