"""What a sequence feeds the LLM: items of its tables, laid out as upstream does (cosyvoice/llm/llm.py). No torch."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from voicegate.engine.llm.backend import InvalidRequest, LlmPrompt
from voicegate.engine.model.config import LlmConfig


class Table(Enum):
    """Which embedding table an id belongs to."""

    TEXT = 0
    SPEECH = 1


class SequenceState(Enum):
    RUNNABLE = "runnable"
    WAITING = "waiting for text"
    FINISHED = "finished"
    TRUNCATED = "truncated"  # finished by a length limit
    FAILED = "failed"


Item = tuple[Table, int]


@dataclass(frozen=True, slots=True)
class Feed:
    """One forward: `items` go behind what the sequence has been fed, then a token is sampled at the last position.

    `ignore_eos` is upstream's flag for the sampler (see RepetitionAwareSampler). `is_forced_fill`: nothing is
    sampled, the forward only stores the positions. `num_kept`: only so many of what was fed before stay, and `items` go
    behind these; None: all. `forbids_end`: none but speech ids can come up.
    """

    items: tuple[Item, ...]
    ignore_eos: bool
    is_forced_fill: bool = False
    num_kept: int | None = None
    forbids_end: bool = False


def check_instruction(config: LlmConfig, text_ids: tuple[int, ...]) -> None:
    """Raises InvalidRequest for a text without end of its instruction, where the model wants one before every text."""
    is_needed = config.end_of_prompt_id is not None and config.needs_end_of_prompt
    if is_needed and config.end_of_prompt_id not in text_ids:
        raise InvalidRequest("the text lacks <|endofprompt|>, which ends the instruction before it")


def ends_speech(config: LlmConfig, token: int) -> bool:
    """Of a token that a sequence drew outside bistream's blocks."""
    return token == config.eos_id if config.stop.is_eos_alone else token >= config.speech_token_size


def audible(config: LlmConfig, token: int) -> int | None:
    return token if token < config.speech_token_size else None


# What stands around the text is some 260 items, the same for all that a voice says; there may be as many voices.
@lru_cache(maxsize=256)
def before_text(config: LlmConfig, prompt: LlmPrompt) -> tuple[Item, ...]:
    return ((Table.SPEECH, config.sos_id), *text_items(prompt.text_ids))


@lru_cache(maxsize=256)
def behind_text(config: LlmConfig, prompt: LlmPrompt) -> tuple[Item, ...]:
    return ((Table.SPEECH, config.task_id), *speech_items(prompt.speech_ids))


def text_items(text_ids: Iterable[int]) -> list[Item]:
    table = Table.TEXT
    return [(table, text_id) for text_id in text_ids]


def speech_items(speech_ids: Iterable[int]) -> list[Item]:
    table = Table.SPEECH
    return [(table, speech_id) for speech_id in speech_ids]
