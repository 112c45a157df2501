"""The script's part in the choice of language, and the hint's."""

import pytest

from voicegate.engine.text.language import base_language, detect_language, recorded_language


@pytest.mark.parametrize(
    ("text", "hint", "language"),
    [
        ("Hello there", "en", "en"),
        ("Hello there", "en-GB", "en-GB"),
        ("Guten Tag", "de", "de"),
        ("Hello there", "zh", "en"),
        ("Hello there", "ru", "en"),
        ("你好", "en", "zh"),
        ("你好", "zh-CN", "zh-CN"),
        ("你好", "yue", "yue"),
        ("東京都", "ja", "ja"),
        ("東京へ", "zh", "ja"),
        ("コード", "en", "ja"),
        ("안녕 3", "en", "ko"),
        ("Привет", "en", "ru"),
        ("Привіт", "uk", "uk"),
        ("สวัสดี", "en", "th"),
        ("مرحبا", "en", "ar"),
        ("سلام", "fa", "fa"),
        ("नमस्ते", "en", "hi"),
        ("Γειά", "en", "el"),
        ("שלום", "en", "he"),
        ("α is 5", "en", "en"),
        # mixed
        ("CosyVoice 是 a good model吗", "en", "zh"),
        ("请看https://www.example.com/docs/a/b", "en", "zh"),
        ("The character 好 means good", "en", "en"),
        ("The character 好 means good", "zh", "zh"),
        ("The Korean word 안녕 means hi and it costs $5", "en", "en"),
        ("In Russian, привет means hello", "en-GB", "en-GB"),
        ("In Russian, привет means hello", "ru", "ru"),
        ("Please tell مرحبا to them", "en", "en"),
        ("The Greek for it is λόγος", "en", "en"),
        ("The Japanese word こんにちは means hello", "en", "en"),
        ("The Japanese word こんにちは means hello", "ja", "ja"),
        ("iPhoneを買った", "en", "ja"),
        ("iPhone купил", "en", "ru"),
        ("Я купил iPhone Pro Max", "en", "ru"),
        ("Room ฿500 a night", "en", "en"),
        ("ห้อง ฿500", "en", "th"),
        # formulas
        ("$$x = \\frac{1}{2}$$", "zh", "zh"),
        ("S = πr²", "zh", "zh"),
        ("y = sin(x)", "zh", "zh"),
        ("This is sin (x)", "zh", "en"),
        # nothing that decides
        ("", "de", "de"),
        ("3.14", "zh", "zh"),
        ("5 km", "zh", "zh"),
        ("GPU", "zh", "zh"),
        ("5 km", "en", "en"),
    ],
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
