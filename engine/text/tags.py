"""Tags that make the voice do something ([laughter], <strong>): which there are, and where they stand in a text. Pure.

Anybody who writes the text may use these. The other words of a model's format (<|endofprompt|>, phonemes) stay out:
with them a text could end the prompt, or "[a]" in a list become a sound. `TextTokenizer` knows which its model has.
"""

import re
from collections.abc import Callable, Set
from typing import Final

# Of CosyVoice's tokenizers (cosyvoice/tokenizer/tokenizer.py); those without an audible meaning are left out.
EXPRESSIVE_TAGS: Final = frozenset(
    {
        *("[breath]", "[quick_breath]", "[laughter]", "[cough]", "[sigh]", "[lipsmack]", "[clucking]", "[hissing]"),
        *("[vocalized-noise]", "<laughter>", "</laughter>", "<strong>", "</strong>"),
    }
)
# Not before "(": that is the text of a link.
_TAG: Final = re.compile(f"({'|'.join(map(re.escape, sorted(EXPRESSIVE_TAGS)))})(?!\\()")
_LEADING_MARK: Final = re.compile(r"\s*([.,?!;:。，？！；：、])")


def split_tags(text: str) -> list[str]:
    """Text, tag, text, ..., text: the tags at the odd places; at least one text."""
    return _TAG.split(text) if "[" in text or "<" in text else [text]


def without_tags(text: str, kept: Set[str]) -> str:
    """`text` without the expressive tags that are not `kept`."""
    return _TAG.sub(lambda match: match[0] if match[0] in kept else " ", text)


def read_around_tags(pieces: list[str], read: Callable[[str], str], *, has_blanks: bool) -> str:
    """`pieces` of `split_tags`, the texts read and the tags in their places.

    `has_blanks`: whether the language writes blanks between words.
    """
    parts = [read(pieces[0])]
    for before, tag, behind in zip(pieces[::2], pieces[1::2], pieces[2::2], strict=False):
        gap = " " if has_blanks and before[-1:].isspace() and any(parts) else ""
        mark = _LEADING_MARK.match(behind)
        words = read(behind)
        is_apart = has_blanks and (mark is not None or behind[:1].isspace())
        parts.append(gap + tag + (mark[1] if mark else "") + (" " + words if words and is_apart else words))
    return "".join(parts)
