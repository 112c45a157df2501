"""Adapts requests of other vendors' clients to what is possible here: left out or shortened, never refused. Pure.

Their packages send some of it by themselves, with every utterance, and no one can change that. A native client can, so
a native `open` is refused (`opening`).
"""

import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from msgspec import structs

from voicegate.engine.checks import MODEL_MARKS, check_language
from voicegate.engine.interface import BadRequest, EngineInfo, Unsupported
from voicegate.protocol.messages import Open

# As upstream writes them around its instructions.
_CONTROL_WORD: Final = re.compile(r"<\|\w*\|>")


@dataclass(frozen=True, slots=True)
class Adapted:
    message: Open
    not_followed: tuple[str, ...] = ()  # what was changed, for people: "instructions (shortened to 200 characters)"


def adapted(message: Open, info: EngineInfo) -> Adapted:
    """`message` as `opening.find_refusal` has nothing against its language, seed and instructions."""
    notes: list[str] = []
    language = _spoken_language(message.language, info)
    if message.language and language is None:
        notes.append("language")
    seed = message.seed if info.is_reproducible else None
    if seed is not message.seed:
        notes.append("seed")
    instruct, note = _followed(message.instruct, info.max_instruct_chars)
    if note is not None:
        notes.append(note)
    return Adapted(structs.replace(message, language=language, seed=seed, instruct=instruct), tuple(notes))


def _spoken_language(tags: str | None, info: EngineInfo) -> str | None:
    """None where an `open` with it would be refused.

    `tags`: a language, or two parted by a comma (`protocol.dialects.dialect.Effect`), the first that is spoken counts;
    of two at most, for what a client wrote may be long.
    """
    for tag in () if tags is None else tags.split(",", 1):
        with suppress(Unsupported, BadRequest):
            check_language(tag, info)
            return tag
    return None


def _followed(instruct: str | None, max_chars: int) -> tuple[str | None, str | None]:
    """As the model follows it; and what was changed, where words were."""
    words = _in_plain_words(instruct)
    if not words:
        return None, None
    if not max_chars:
        return None, "instructions"
    if len(words) <= max_chars:
        return words, None
    return _shortened(words, max_chars), f"instructions (shortened to {max_chars} characters)"


def _in_plain_words(instruct: str | None) -> str:
    """Without the model's own marks, which users of upstream write around their instructions."""
    text = _CONTROL_WORD.sub(" ", instruct or "")
    for mark in MODEL_MARKS:
        text = text.replace(mark, " ")
    return text.strip()


def _shortened(words: str, max_chars: int) -> str:
    """At the end of a word, where one ends in the second half: Chinese has no blanks."""
    head = words[: max_chars + 1]
    end = head.rfind(" ", max_chars // 2)
    return head[:max_chars] if end < 0 else head[:end].rstrip()
