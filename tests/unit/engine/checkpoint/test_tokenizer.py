"""vocab.json and merges.txt become one tokenizer whose ids are upstream's."""

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from tests.support.golden import COSYVOICE3_DIR
from tests.support.upstream_source import SMALL
from voicegate.bench.full_size.source import Sizes, tokenizer_files
from voicegate.engine.checkpoint.conversion import CheckpointError
from voicegate.engine.checkpoint.tokenizer import build_tokenizer, special_tokens
from voicegate.engine.text.tokenizer import TextTokenizer


def write_files(directory: Path, sizes: Sizes) -> tuple[Path, Path, Path]:
    for name, content in tokenizer_files(sizes).items():
        (directory / name).write_text(content, encoding="utf-8")
    return directory / "vocab.json", directory / "merges.txt", directory / "tokenizer_config.json"


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return build_tokenizer(*write_files(tmp_path_factory.mktemp("full"), Sizes()))


def test_every_special_token_is_one_id_and_the_released_one(full: Tokenizer) -> None:
    ids: dict[str, int] = json.loads((COSYVOICE3_DIR / "special_token_ids.json").read_text())["ids"]
    assert sorted(special_tokens()) == sorted(ids)
    for text, id_ in ids.items():
        assert full.encode(text).ids == [id_]
        assert full.encode(f"a{text}b").ids == [*full.encode("a").ids, id_, *full.encode("b").ids]
    assert full.get_vocab_size() == 151_924


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("I'll say 12.", ["I", "'ll", "Ġsay", "Ġ", "1", "2", "."]),
        ("DON'T", ["DON", "'T"]),
        ("a\n\nb", ["a", "ĊĊ", "b"]),
        ("x  y", ["x", "Ġ", "Ġy"]),
        ("(hi)!", ["(hi", ")!"]),
        ("你好", ["ä½łå¥½"]),
    ],
)
def test_text_is_split_as_qwen2_splits_it(full: Tokenizer, text: str, pieces: list[str]) -> None:
    assert full.pre_tokenizer is not None
    assert [piece for piece, _ in full.pre_tokenizer.pre_tokenize_str(text)] == pieces


def test_composed_and_decomposed_letters_are_the_same(full: Tokenizer) -> None:
    assert full.encode("e\u0301").ids == full.encode("\u00e9").ids
    assert full.decode(full.encode("Café, 你好!").ids) == "Café, 你好!"


def test_the_engine_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(build_tokenizer(*write_files(tmp_path, SMALL)).to_str(), encoding="utf-8")
    end_of_prompt = SMALL.vocab_entries + 3
    tokenizer = TextTokenizer.from_file(path, end_of_prompt_id=end_of_prompt)
    assert tokenizer.encode_prompt("ab<|endofprompt|>")[-1] == end_of_prompt
    assert end_of_prompt not in tokenizer.encode("ab<|endofprompt|>")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("vocab.json", "{", "is not valid JSON"),
        ("vocab.json", "[]", "holds no mapping"),
        ("vocab.json", '{"a": 1}', "ids are not 0 to 0"),
        ("vocab.json", '{"a": 0}', "lacks 255 of the 256 bytes"),
        ("merges.txt", "a b c\n", "'a b c' is no pair"),
        ("merges.txt", "Ġ missing\n", "do not go together"),
        ("tokenizer_config.json", '{"added_tokens_decoder": {"7": {"content": "<|im_end|>"}}}', "as 7, which"),
        ("vocab.json", '{"a": 0, "b": "1"}', "ids are not 0 to 1"),
        ("vocab.json", '{"a": 0, "b": null}', "ids are not 0 to 1"),
        ("vocab.json", '{"a": 0, "b": true}', "ids are not 0 to 1"),
        ("tokenizer_config.json", '{"added_tokens_decoder": []}', "added_tokens_decoder lacks or garbles"),
        ("tokenizer_config.json", '{"added_tokens_decoder": {"7": null}}', "added_tokens_decoder lacks or garbles"),
        ("tokenizer_config.json", '{"added_tokens_decoder": {"7": {}}}', "added_tokens_decoder lacks or garbles"),
        ("tokenizer_config.json", '{"added_tokens_decoder": {"x": {"content": "y"}}}', "lacks or garbles invalid"),
    ],
)
def test_unfit_files_are_named(tmp_path: Path, name: str, content: str, message: str) -> None:
    paths = write_files(tmp_path, SMALL)
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(CheckpointError, match=message) as caught:
        build_tokenizer(*paths)
    assert name in str(caught.value)


def test_a_vocabulary_that_holds_a_special_token_is_refused(tmp_path: Path) -> None:
    paths = write_files(tmp_path, SMALL)
    vocab = json.loads(paths[0].read_text())
    last = next(text for text, id_ in vocab.items() if id_ == len(vocab) - 1)
    vocab["<|endofprompt|>"] = vocab.pop(last)
    paths[0].write_text(json.dumps(vocab))
    paths[1].write_text("#version: 0.2\n")
    with pytest.raises(CheckpointError, match="do not get ids of their own"):
        build_tokenizer(*paths)
