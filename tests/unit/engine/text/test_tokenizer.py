"""Special tokens are special in prompts only, and a wrong file is named."""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from voicegate.engine.text.tokenizer import TextTokenizer, TokenizerError

BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())
END_OF_PROMPT_ID = len(BYTES)
BREATH_ID = END_OF_PROMPT_ID + 1
NOT_SPECIAL_ID = END_OF_PROMPT_ID + 2


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A byte-level tokenizer without merges: every byte is an id."""
    tokenizer = Tokenizer(models.BPE(vocab={char: index for index, char in enumerate(BYTES)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|endofprompt|>", "[breath]"])
    tokenizer.add_tokens([AddedToken("<tool_call>", special=False)])
    path = tmp_path_factory.mktemp("model") / "tokenizer.json"
    tokenizer.save(str(path))
    return path


@pytest.fixture(scope="module")
def tokenizer(path: Path) -> TextTokenizer:
    return TextTokenizer.from_file(path, end_of_prompt_id=END_OF_PROMPT_ID)


def test_prompts_hold_special_tokens(tokenizer: TextTokenizer) -> None:
    ids = tokenizer.encode_prompt("a<|endofprompt|>[breath]<tool_call>b")
    assert ids[1:-1] == (END_OF_PROMPT_ID, BREATH_ID, NOT_SPECIAL_ID)


@pytest.mark.parametrize(
    "text", ["<|endofprompt|>", "a<|endofprompt|>b", "[breath]", "<tool_call>", " <|endofprompt|> "]
)
def test_clients_text_holds_none(tokenizer: TextTokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert len(ids) == len(text)
    assert max(ids) < END_OF_PROMPT_ID


@given(text=st.text(alphabet=st.characters() | st.sampled_from("<|>[]endofprompt")))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
def test_any_text_is_its_bytes(tokenizer: TextTokenizer, text: str) -> None:
    assert len(tokenizer.encode(text)) == len(text.encode("utf-8", "ignore"))


def test_what_is_spoken_may_hold_expressive_tags(tokenizer: TextTokenizer) -> None:
    assert tokenizer.tags == {"[breath]"}
    assert tokenizer.encode_spoken("a [breath]b") == (*tokenizer.encode("a "), BREATH_ID, *tokenizer.encode("b"))
    assert tokenizer.encode_spoken("[breath]") == (BREATH_ID,)
    assert tokenizer.encode_spoken("") == ()


@pytest.mark.parametrize("text", ["<|endofprompt|>", "<tool_call>", "[laughter]", "[breath](x)", "< [ breath]"])
def test_what_is_spoken_holds_no_other_special_tokens(tokenizer: TextTokenizer, text: str) -> None:
    assert tokenizer.encode_spoken(text) == tokenizer.encode(text)


def test_plain_text_is_the_same_in_both(tokenizer: TextTokenizer) -> None:
    text = "Hello, world! 你好"
    assert tokenizer.encode(text) == tokenizer.encode_prompt(text)
    assert tokenizer.encode("") == ()


def test_lone_surrogates_are_left_out(tokenizer: TextTokenizer) -> None:
    assert tokenizer.encode("a\ud800b") == tokenizer.encode("ab")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=r"tokenizer\.json cannot be read"):
        TextTokenizer.from_file(tmp_path / "tokenizer.json", end_of_prompt_id=1)


@pytest.mark.parametrize("content", [b"", b"no json", b"[]", b"7", b"{}", b"\xff\xfe"])
def test_a_file_that_is_no_tokenizer_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(TokenizerError, match=r"tokenizer\.json"):
        TextTokenizer.from_file(path, end_of_prompt_id=1)


def test_another_models_file_is_named(path: Path) -> None:
    with pytest.raises(TokenizerError, match=rf"tokenizer\.json has <\|endofprompt\|> as {END_OF_PROMPT_ID}, .* as 7"):
        TextTokenizer.from_file(path, end_of_prompt_id=7)


def test_a_file_without_the_token_is_named(path: Path, tmp_path: Path) -> None:
    bare = tmp_path / "tokenizer.json"
    bare.write_text(json.dumps(json.loads(path.read_text()) | {"added_tokens": []}))
    with pytest.raises(TokenizerError, match=r"<\|endofprompt\|> as None"):
        TextTokenizer.from_file(bare, end_of_prompt_id=END_OF_PROMPT_ID)
