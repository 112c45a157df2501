"""Texts of a wanted length: composed, and predicted for a model that never stops."""

import random

import pytest

from tests.support.golden import TINY_MODEL_DIR
from voicegate.bench.engine.texts import Lengths, ScriptWriter, candidates, limit_seconds
from voicegate.bench.sentences import EVERYDAY
from voicegate.engine.model.config import StopRule
from voicegate.engine.text.tokenizer import TextTokenizer

TINY_END_OF_PROMPT_ID = 1258


@pytest.fixture(scope="module")
def tokenizer() -> TextTokenizer:
    return TextTokenizer.from_file(TINY_MODEL_DIR / "tokenizer.json", end_of_prompt_id=TINY_END_OF_PROMPT_ID)


def test_a_clause_at_its_limit_speaks_0_8_s_a_text_token_up_to_the_cap(tokenizer: TextTokenizer) -> None:
    def seconds(text: str, cap: int) -> float:
        return limit_seconds(text, tokenizer, language="en", stop=StopRule(), max_clause_tokens=cap)

    first, second = "The train leaves.", "Please put the milk back."
    num_tokens = [len(tokenizer.encode(text)) for text in (first, second)]
    assert seconds(first, 10_000) == pytest.approx(0.8 * num_tokens[0])
    assert seconds(f"{first} {second}", 10_000) == pytest.approx(0.8 * sum(num_tokens))
    assert seconds(f"{first} {second}", 75) == pytest.approx(2 * 75 / 25)


def test_natural_texts_are_whole_sentences() -> None:
    assert candidates(Lengths.NATURAL) == list(EVERYDAY)


def test_texts_for_a_limit_are_sentences_that_the_segmenter_does_not_join() -> None:
    texts = candidates(Lengths.LIMIT)
    assert len(texts) > 100
    assert all(text.endswith(".") and "," not in text and len(text) >= 8 for text in texts)


@pytest.mark.parametrize("wanted_s", [1.0, 4.0, 7.0, 15.0])
def test_a_script_is_about_as_long_as_wanted(wanted_s: float) -> None:
    writer = ScriptWriter(lambda text: len(text) / 10, candidates(Lengths.LIMIT), random.Random(0))
    script = writer.write(wanted_s)
    assert script.expected_s == pytest.approx(len(script.text) / 10)
    assert script.expected_s == pytest.approx(wanted_s, abs=0.5)
    assert "".join(script.pieces) == script.text
    assert len(script.pieces) > 1


def test_many_scripts_cover_the_range_of_lengths() -> None:
    writer = ScriptWriter(lambda text: len(text) / 10, candidates(Lengths.LIMIT), random.Random(0))
    scripts = writer.write_many(50, 3.0, 15.0)
    lengths = [script.expected_s for script in scripts]
    assert min(lengths) == pytest.approx(3.0, abs=0.5)
    assert max(lengths) == pytest.approx(15.0, abs=0.8)
    assert sum(lengths) / 50 == pytest.approx(9.0, abs=0.5)
    assert lengths != sorted(lengths)
    again = ScriptWriter(lambda text: len(text) / 10, candidates(Lengths.LIMIT), random.Random(0))
    assert again.write_many(50, 3.0, 15.0) == scripts
