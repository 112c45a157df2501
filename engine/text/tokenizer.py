"""Speakable text -> text ids, through a Hugging Face tokenizer file. Knows which text may hold special tokens.

Special tokens are words of the model's format (<|endofprompt|>, [laughter], ...). In a prompt that this server wrote
they are what they look like. In a client's text they are letters, or a client could end the prompt itself; but what is
to be said may hold the expressive ones (`tags.EXPRESSIVE_TAGS`).
"""

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from voicegate.engine.text.tags import EXPRESSIVE_TAGS, split_tags

END_OF_PROMPT = "<|endofprompt|>"


class TokenizerError(ValueError):
    """The tokenizer file is missing, unreadable, or of another model."""


class TextTokenizer:
    def __init__(self, plain: Tokenizer, prompt: Tokenizer) -> None:
        self._plain = plain  # has no added tokens
        self._prompt = prompt
        # An added token of the file; a vocabulary word that looks like one is text.
        tag_ids = {tag: prompt.token_to_id(tag) for tag in EXPRESSIVE_TAGS if plain.token_to_id(tag) is None}
        self._tag_ids = {tag: tag_id for tag, tag_id in tag_ids.items() if tag_id is not None}
        self.tags = frozenset(self._tag_ids)  # the expressive tags that this model has

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
        return cls(plain, prompt)

    def encode(self, text: str) -> tuple[int, ...]:
        """A client's text. What looks like a special token is encoded letter by letter."""
        return _encode(self._plain, text)

    def encode_spoken(self, text: str) -> tuple[int, ...]:
        """What `normalize.speakable` returned for `tags`: a client's text in which expressive tags are meant."""
        ids: list[int] = []
        for index, piece in enumerate(split_tags(text)):
            ids += (self._tag_ids[piece],) if index % 2 and piece in self._tag_ids else self.encode(piece)
        return tuple(ids)

    def encode_prompt(self, text: str) -> tuple[int, ...]:
        """A prompt of a voice or of the model, in which special tokens are meant."""
        return _encode(self._prompt, text)


def _encode(tokenizer: Tokenizer, text: str) -> tuple[int, ...]:
    # A lone surrogate is a str, but no text: the tokenizer would raise.
    text = text.encode("utf-8", "ignore").decode("utf-8")
    return tuple(tokenizer.encode(text, add_special_tokens=False).ids)
