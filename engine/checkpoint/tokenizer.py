"""Qwen2's vocab.json and merges.txt plus CosyVoice3's special tokens -> one tokenizer.json of the tokenizers library.

The pieces are those of Qwen2's fast tokenizer: NFC, its splitting pattern, byte-level BPE. Special tokens follow the
vocabulary in the order of `special_tokens.json`, which for Qwen2's 151643 entries gives the released ids.
"""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Final

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from voicegate.engine.checkpoint.conversion import CheckpointError
from voicegate.engine.checkpoint.source import load_json

END_OF_PROMPT: Final = "<|endofprompt|>"

# Contractions, words with the sign before them, single digits, signs, line ends, blanks: of Qwen2.
_SPLIT: Final = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@cache
def special_tokens() -> tuple[str, ...]:
    """In the order of their ids: Qwen2's own three, then CosyVoice3's 278."""
    return tuple(json.loads((resources.files(__package__) / "special_tokens.json").read_bytes()))


def build_tokenizer(
    vocab_path: Path, merges_path: Path, config_path: Path | None = None, *, specials: Sequence[str] | None = None
) -> Tokenizer:
    """Every id checked. `config_path`: tokenizer_config.json, whose own ids must agree. Raises CheckpointError.

    `specials`: in the order of their ids, by default CosyVoice3's.
    """
    vocab, merges = _read_vocab(vocab_path), _read_merges(merges_path)
    tokenizer = _build(
        vocab, merges, special_tokens() if specials is None else specials, f"{vocab_path} and {merges_path}"
    )
    if config_path is not None and config_path.exists():
        _check_against_config(tokenizer, config_path)
    return tokenizer


def rebuild_tokenizer(path: Path, *, specials: Sequence[str]) -> Tokenizer:
    """A tokenizer.json: vocabulary and merges, with these special tokens and no others. Raises CheckpointError."""
    model = _read_json(path).get("model", {})
    try:
        vocab = _checked_vocab(model["vocab"], path)
        pairs = [pair.split(" ") if isinstance(pair, str) else pair for pair in model["merges"]]
        merges = [(str(left), str(right)) for left, right in pairs]
    except CheckpointError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(f"{path} is no byte-level BPE tokenizer: it lacks or garbles {error}") from error
    return _build(vocab, merges, specials, str(path))


def added_ids(path: Path) -> dict[str, int]:
    """Ids of the added tokens of a tokenizer.json, by their text. Raises CheckpointError."""
    content = _read_json(path)
    try:
        return {entry["content"]: int(entry["id"]) for entry in content.get("added_tokens", ())}
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path}: added_tokens lacks or garbles {error}") from error


def _build(vocab: dict[str, int], merges: list[tuple[str, str]], specials: Sequence[str], where: str) -> Tokenizer:
    try:
        bpe = models.BPE(
            vocab=vocab,
            merges=merges,
            continuing_subword_prefix="",
            end_of_word_suffix="",
            fuse_unk=False,
            byte_fallback=False,
        )
    except Exception as error:  # the library raises nothing narrower
        raise CheckpointError(f"vocabulary and merges of {where} do not go together: {error}") from error
    tokenizer = Tokenizer(bpe)
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_SPLIT), behavior="isolated", invert=False),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in specials])
    _check_ids(tokenizer, {text: len(vocab) + index for index, text in enumerate(specials)})
    return tokenizer


def add_plain_tokens(tokenizer: Tokenizer, texts: Sequence[str]) -> None:
    """Tokens that decoding keeps, after all that are there. Raises CheckpointError."""
    first = tokenizer.get_vocab_size()
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in texts])
    _check_ids(tokenizer, {text: first + index for index, text in enumerate(texts)})


def _check_ids(tokenizer: Tokenizer, wanted: Mapping[str, int]) -> None:
    wrong = [text for text, id_ in wanted.items() if tokenizer.encode(text, add_special_tokens=False).ids != [id_]]
    if wrong:
        raise CheckpointError(f"these special tokens do not get ids of their own in this vocabulary: {wrong[:5]}")


def _check_against_config(tokenizer: Tokenizer, path: Path) -> None:
    content = _read_json(path)
    try:
        added = {int(id_): str(entry["content"]) for id_, entry in content.get("added_tokens_decoder", {}).items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(f"{path}: added_tokens_decoder lacks or garbles {error}") from error
    for id_, text in added.items():
        if tokenizer.token_to_id(text) != id_:
            raise CheckpointError(f"{path} has {text} as {id_}, which vocab.json does not lead to")


def _read_vocab(path: Path) -> dict[str, int]:
    return _checked_vocab(_read_json(path), path)


def _checked_vocab(vocab: dict[str, int], path: Path) -> dict[str, int]:
    ids = vocab.values()
    if not all(type(id_) is int for id_ in ids) or sorted(ids) != list(range(len(vocab))):
        raise CheckpointError(f"{path}: the ids are not 0 to {len(vocab) - 1}, each once")
    missing = [char for char in pre_tokenizers.ByteLevel.alphabet() if char not in vocab]
    if missing:
        raise CheckpointError(f"{path} lacks {len(missing)} of the 256 bytes: it is no byte-level vocabulary")
    return vocab


def _read_merges(path: Path) -> list[tuple[str, str]]:
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    pairs = [tuple(line.split(" ")) for line in lines if line and not line.startswith("#version")]
    wrong = [pair for pair in pairs if len(pair) != 2]
    if wrong:
        raise CheckpointError(f"{path}: {' '.join(wrong[0])!r} is no pair of tokens")
    return [(pair[0], pair[1]) for pair in pairs]


def _read_json(path: Path) -> dict[str, Any]:
    content = load_json(path)
    if not isinstance(content, dict):
        raise CheckpointError(f"{path} holds no mapping")
    return content
