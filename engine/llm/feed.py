"""Rows of the LLM's tables that a sequence feeds it, laid out as upstream does (cosyvoice/llm/llm.py). No torch.

Text and speech ids are rows of one table here (model.py): text ids as they are, speech ids behind them. They are kept
as arrays: some 260 of a voice's prompt go into every first reading, for which a device waits, and as many objects take
long to come from memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from voicegate.engine.llm.backend import InvalidRequest, LlmPrompt
from voicegate.engine.model.config import LlmConfig

Rows = npt.NDArray[np.int32]  # of the joint table


class SequenceState(Enum):
    RUNNABLE = "runnable"
    WAITING = "waiting for text"
    FINISHED = "finished"
    TRUNCATED = "truncated"  # finished by a length limit
    FAILED = "failed"


@dataclass(frozen=True, slots=True, eq=False)
class Feed:
    """One forward: `rows` go behind what the sequence has been fed, then a token is sampled at the last position.

    `ignore_eos` is upstream's flag for the sampler (see RepetitionAwareSampler). `is_forced_fill`: nothing is
    sampled, the forward only stores the positions. `num_kept`: only so many of what was fed before stay, and `rows` go
    behind these; None: all.
    """

    rows: Rows
    ignore_eos: bool
    is_forced_fill: bool = False
    num_kept: int | None = None


def check_instruction(config: LlmConfig, text_ids: Sequence[int]) -> None:
    """Raises InvalidRequest for a text without end of its instruction, where the model wants one before every text."""
    if not _is_instructed(config, text_ids):
        raise InvalidRequest("the text lacks <|endofprompt|>, which ends the instruction before it")


def _is_instructed(config: LlmConfig, text_ids: Sequence[int]) -> bool:
    is_needed = config.end_of_prompt_id is not None and config.needs_end_of_prompt
    return not is_needed or config.end_of_prompt_id in text_ids


def ends_speech(config: LlmConfig, token: int) -> bool:
    """Whether a token that a sequence drew outside bistream's blocks ends its speech."""
    return token == config.eos_id if config.stop.is_eos_alone else token >= config.speech_token_size


def audible(config: LlmConfig, token: int) -> int | None:
    return token if token < config.speech_token_size else None


@dataclass(frozen=True, slots=True, eq=False)
class PromptRows:
    """Rows around the text, whatever is said after a prompt."""

    before_text: Rows
    behind_text: Rows
    is_instructed: bool  # the model wants no instruction, or this is one


@lru_cache(maxsize=256)  # there may be as many voices
def prompt_rows(config: LlmConfig, prompt: LlmPrompt) -> PromptRows:
    """Raises InvalidRequest for ids that the tables lack."""
    check_text_ids(config, prompt.text_ids)
    _check_ids("speech", prompt.speech_ids, config.num_speech_rows)
    sos, task = speech_rows(config, (config.sos_id,)), speech_rows(config, (config.task_id,))
    return PromptRows(
        np.concatenate((sos, text_rows(prompt.text_ids))),
        np.concatenate((task, speech_rows(config, prompt.speech_ids))),
        _is_instructed(config, prompt.text_ids),
    )


def text_rows(text_ids: Sequence[int]) -> Rows:
    return np.array(text_ids, np.int32)


def speech_rows(config: LlmConfig, speech_ids: Sequence[int]) -> Rows:
    return np.array(speech_ids, np.int32) + np.int32(config.vocab_size)


def check_text_ids(config: LlmConfig, text_ids: Sequence[int]) -> None:
    """Raises InvalidRequest for ids that the text table lacks."""
    _check_ids("text", text_ids, config.vocab_size)


def _check_ids(kind: str, ids: Sequence[int], limit: int) -> None:
    if ids and (min(ids) < 0 or max(ids) >= limit):  # hundreds of a prompt
        wrong = [id_ for id_ in ids if not 0 <= id_ < limit]
        raise InvalidRequest(f"{kind} ids must lie in 0..{limit - 1}; these do not: {wrong[:5]}")
