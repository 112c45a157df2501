"""Speakable text -> text ids, through a Hugging Face tokenizer file. Knows which text may hold special tokens.

Special tokens are words of the model's format (<|endofprompt|>, [laughter], ...). In a prompt that this server wrote
they are what they look like. In a client's text they are letters, or a client could end the prompt itself; but what is
to be said may hold the expressive ones and phonemes (`tags`).
"""

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from tokenizers import Tokenizer

from voicegate.engine.text.tags import EXPRESSIVE_TAGS, NOTATION_TOKENS, split_tags, tokens_of

END_OF_PROMPT = "<|endofprompt|>"


# Splitting patterns by which a blank before a letter begins a piece, whatever stands before it, and no piece goes on
# behind it: Qwen2's, and that of the tiny model. Text is tokenised piece by piece.
_WORDS_APART: Final = frozenset(
    {
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)"
        r"|\s+",
        r"'(?:s|t|re|ve|m|ll|d)\b| ?[a-z]+| ?[0-9]| ?[^\sa-z0-9]|\s+",
    }
)
_NORMALIZERS: Final = frozenset({"NFC", "Lowercase"})  # which leave each ASCII character what it is, but for its case
_WORDS: Final = re.compile(r"[!-~]{1,32}(?: [A-Za-z][!-~]{0,31})*")
# Words whose tokens are kept. Lower -> more is tokenised again that somebody has said before; higher -> memory, some
# 200 bytes a word.
_NUM_KEPT_WORDS: Final = 16_384


class TokenizerError(ValueError):
    """The tokenizer file is missing, unreadable, or of another model."""


class TextTokenizer:
    def __init__(self, plain: Tokenizer, prompt: Tokenizer, *, parts_words: bool = False) -> None:
        """`parts_words`: the tokens of words between blanks, each with the blank before it, are those of the text."""
        self._plain = plain  # has no added tokens
        self._parts_words = parts_words
        self._encode_word = lru_cache(_NUM_KEPT_WORDS)(lambda word: _encode(plain, word))
        self._prompt = prompt
        # An added token of the file; a vocabulary word that looks like one is text.
        tag_ids = {
            tag: prompt.token_to_id(tag) for tag in EXPRESSIVE_TAGS | NOTATION_TOKENS if plain.token_to_id(tag) is None
        }
        self._tag_ids = {tag: tag_id for tag, tag_id in tag_ids.items() if tag_id is not None}
        self.tags = frozenset(self._tag_ids)  # of these, those that this model has

    @classmethod
    def from_file(cls, path: Path, *, end_of_prompt_id: int | None) -> "TextTokenizer":
        """Raises TokenizerError, which names the file. The id must be the file's own: else it is another model's.

        None: the model has none.
        """
        try:
            content = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise TokenizerError(f"{path} cannot be read: {error}") from error
        try:
            description: dict[str, Any] = json.loads(content)
            prompt = Tokenizer.from_str(content)
            # Not `encode_special_tokens`: that spares only added tokens that the file marks as special.
            plain = Tokenizer.from_str(json.dumps(description | {"added_tokens": []}))
        except Exception as error:  # from_str raises nothing narrower
            raise TokenizerError(f"{path} is not a tokenizer file (tokenizer.json): {error}") from error
        found = prompt.token_to_id(END_OF_PROMPT)
        if end_of_prompt_id is not None and found != end_of_prompt_id:
            raise TokenizerError(
                f"{path} has {END_OF_PROMPT} as {found}, model.json has it as {end_of_prompt_id}: "
                "the two files are of different models"
            )
        return cls(plain, prompt, parts_words=_parts_words(description))

    def encode(self, text: str) -> tuple[int, ...]:
        """A client's text. What looks like a special token is encoded letter by letter."""
        if not self._parts_words or _WORDS.fullmatch(text) is None:
            return _encode(self._plain, text)
        first, *words = text.split(" ")
        ids = [*self._encode_word(first)]
        for word in words:
            ids += self._encode_word(" " + word)
        return tuple(ids)

    def encode_spoken(self, text: str) -> tuple[int, ...]:
        """Text that `normalize.speakable` returned for `tags`: a client's text in which expressive tags are meant."""
        ids: list[int] = []
        for index, piece in enumerate(split_tags(text)):
            tokens = tokens_of(piece) if index % 2 else []
            is_tag = bool(tokens) and self.tags.issuperset(tokens)
            ids += (self._tag_ids[token] for token in tokens) if is_tag else self.encode(piece)
        return tuple(ids)

    def encode_prompt(self, text: str) -> tuple[int, ...]:
        """A prompt of a voice or of the model, in which special tokens are meant."""
        return _encode(self._prompt, text)


def _parts_words(description: Mapping[str, Any]) -> bool:
    match description:
        case {
            "model": {"type": "BPE", "dropout": None},
            "pre_tokenizer": {
                "pretokenizers": [
                    {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False},
                    {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
                ]
            },
        } if pattern in _WORDS_APART:
            normalizer = description.get("normalizer") or {"normalizers": []}
            return all(each["type"] in _NORMALIZERS for each in normalizer.get("normalizers", [normalizer]))
    return False


def _encode(tokenizer: Tokenizer, text: str) -> tuple[int, ...]:
    # A lone surrogate is a str, but no text: the tokenizer would raise.
    text = text.encode("utf-8", "ignore").decode("utf-8")
    return tuple(tokenizer.encode(text, add_special_tokens=False).ids)
