"""Plain words take short ways through the text rules: they come out as they would the long way."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import pre_tokenizers

from tests.support.tiny_tokenizer import tiny_tokenizer
from voicegate.engine.checkpoint import tokenizer as checkpoint_tokenizer
from voicegate.engine.text import clause_cutter, normalize, word_cutter
from voicegate.engine.text.cleanup import clean_characters
from voicegate.engine.text.english.abbreviations import ABBREVIATIONS
from voicegate.engine.text.english.reader import is_read_as_written
from voicegate.engine.text.normalize import SpanReader, speakable
from voicegate.engine.text.punctuation import tidy
from voicegate.engine.text.segmenter import TextSpan
from voicegate.engine.text.tokenizer import TextTokenizer
from voicegate.engine.text.unsaid import UnsaidSplitter

_NEVER = re.compile(r"(?!)")
_PIECES = [
    *("the", "train", "May", "may", "Dr.", "is", "I", "don't", "well-known", "e.g.", "5", "30", "pm", "km", "Ok", "é"),
    *(" ", " ", " ", " ", "  ", "\n", ",", ".", "?", "!", ";", ":", "'", "-", "...", "<b", "`", "x/y", "今天", "，"),
]
texts = st.lists(st.sampled_from(_PIECES), max_size=14).map("".join)


@given(texts, st.booleans(), st.booleans())
def test_tidy(text: str, keep_inner_stops: bool, keep_digit_marks: bool) -> None:
    # A bracket at the beginning is no break, and no plain word.
    the_long_way = tidy("(" + text, keep_inner_stops=keep_inner_stops, keep_digit_marks=keep_digit_marks)
    assert tidy(text, keep_inner_stops=keep_inner_stops, keep_digit_marks=keep_digit_marks) == the_long_way


@pytest.mark.parametrize("char", [chr(code) for code in range(128)])
def test_characters(char: str) -> None:
    assert clean_characters("a" + char) + " " == clean_characters("a" + char + "\t")


@given(texts)
def test_the_words_that_are_whole(text: str) -> None:
    found = word_cutter.finished_length(text)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(word_cutter, "_PLAIN_WORDS", _NEVER)
        assert word_cutter.finished_length(text) == found


@given(st.lists(texts, max_size=4))
def test_lines_that_are_no_fence(pieces: list[str]) -> None:
    def taken(pushes: list[str]) -> str:
        splitter = UnsaidSplitter()
        found = [piece for text in pushes for piece in splitter.push(text)] + splitter.flush()
        return "".join(piece.text for piece in found if not piece.is_code)

    assert taken(pieces) == taken(["".join(pieces)])


@given(texts, st.integers(4, 40))
def test_where_clauses_end(text: str, max_letters: int) -> None:
    def cuts() -> list[int]:
        cutter = clause_cutter.ClauseCutter(
            first_min_letters=8, first_min_words=2, soft_min_letters=12, min_letters=3, max_letters=max_letters
        )
        rest, found = text, []
        while (cut := cutter.next_cut(rest)) is not None:
            found.append(cut)
            rest = rest[cut:]
        return found

    found = cuts()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(clause_cutter.ClauseCutter, "_takes_whole", lambda *_: False)
        patched.setattr(clause_cutter.ClauseCutter, "_takes_words", lambda *_: False)
        assert cuts() == found


@given(st.lists(texts, max_size=4), st.sampled_from(["en", "en-GB", "zh", "de"]))
def test_what_is_read_as_it_is_written(spans: list[str], language: str) -> None:
    def read() -> list[str]:
        reader = SpanReader(language)
        return [reader.read(TextSpan(text, 0, len(text))) for text in spans]

    found = read()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(normalize, "is_read_as_written", lambda _: False)
        assert read() == found


_NAMES = sorted({spelling for name in ABBREVIATIONS for spelling in (name, name.title(), name.upper())})


@pytest.mark.parametrize("name", [*_NAMES, "PhD", "ok", "OK", "IV", "May", "million", "first", "o'clock", "I'm", "A's"])
def test_a_name_that_is_read_otherwise_is_not_plain(name: str) -> None:
    for text in (name, f"{name}.", f"the {name} said", f"the {name}.", f"the {name}, and", f"{name}'s"):
        assert not is_read_as_written(text) or speakable(text) == text


def test_plain_words_are_read_as_they_are_written() -> None:
    assert is_read_as_written("The committee's here, I think; aren't you?")


@given(texts | st.text(st.sampled_from("ab'sSt .,-1é\n"), max_size=20))
def test_tokens_of_words_apart(text: str) -> None:
    whole = TextTokenizer(tiny_tokenizer()._plain, tiny_tokenizer()._prompt)
    assert tiny_tokenizer().encode(text) == whole.encode(text)


def test_words_are_kept_of_the_tiny_model() -> None:
    assert tiny_tokenizer()._parts_words


@pytest.mark.parametrize(
    "text", ["the train's here, isn't it? Go", "a b  c", "well-known x.y I'LL e.g. (or) so", "2 b"]
)
def test_words_are_kept_of_a_converted_model(text: str, tmp_path: Path) -> None:
    vocabulary = {char: index for index, char in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    merges = [("Ġ", "t"), ("h", "e"), ("Ġt", "he"), (",", "Ġ"), ("e", "Ġ"), ("t", "Ġ"), ("'", "s")]
    for left, right in merges:
        vocabulary[left + right] = len(vocabulary)
    path = tmp_path / "tokenizer.json"
    checkpoint_tokenizer._build(vocabulary, merges, [], "test").save(str(path))
    tokenizer = TextTokenizer.from_file(path, end_of_prompt_id=None)
    assert tokenizer._parts_words
    assert tokenizer.encode(text) == TextTokenizer(tokenizer._plain, tokenizer._prompt).encode(text)
