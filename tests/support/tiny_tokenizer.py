"""The tiny model's text tokenizer, without its weights, both ways."""

from collections.abc import Sequence
from functools import cache

from tokenizers import Tokenizer

from tests.support.golden import TINY_MODEL_DIR
from voicegate.engine.model.model_json import load_model_config
from voicegate.engine.text.tokenizer import TextTokenizer

_PATH = TINY_MODEL_DIR / "tokenizer.json"


@cache
def tiny_tokenizer() -> TextTokenizer:
    return TextTokenizer.from_file(_PATH, end_of_prompt_id=load_model_config(TINY_MODEL_DIR).llm.end_of_prompt_id)


@cache
def _decoder() -> Tokenizer:
    return Tokenizer.from_file(str(_PATH))


def words_of(text_ids: Sequence[int]) -> str:
    """Words that the LLM is to say."""
    return str(_decoder().decode(list(text_ids)))
