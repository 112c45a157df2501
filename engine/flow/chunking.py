"""When speech tokens become audio: the arithmetic of 50-frame blocks counted from the prompt's first frame. Pure."""

from dataclasses import dataclass
from typing import Final

from voicegate.engine import units
from voicegate.engine.model.config import FLOW_BLOCK_FRAMES

FRAMES_PER_BLOCK: Final = FLOW_BLOCK_FRAMES  # counted from the first frame of the prompt
TOKENS_PER_BLOCK: Final = FRAMES_PER_BLOCK // units.FRAMES_PER_TOKEN


@dataclass(frozen=True, slots=True)
class FirstBlocks:
    """Generated tokens in a stream's first block, after a prompt of any length: each number is a layout of the prompt.

    Layouts share nothing, since all that the flow keeps is counted from the first frame.
    """

    usual: int | None = None  # None: as many as the prompt leaves room for
    short: int | None = None

    @property
    def num_layouts(self) -> int:
        return len({self.usual, self.short})


@dataclass(frozen=True, slots=True)
class BatchSize:
    """How much one batch of blocks may hold: the scheduler goes by it."""

    num_rows: int  # blocks, each of another stream
    num_frames: int  # of all rows together; a last block has fewer than 50


def first_block_tokens(num_prompt_tokens: int) -> int:
    """Generated tokens in the block that the prompt leaves unfinished; a whole block where it leaves none."""
    return TOKENS_PER_BLOCK - num_prompt_tokens % TOKENS_PER_BLOCK


def prompt_lead_in(num_prompt_tokens: int, *, first_block: int | None) -> int:
    """Tokens to put before a prompt so that the block that it leaves unfinished takes `first_block` generated ones.

    The flow is exact only at block borders, which are counted from the first frame: how many lie before the speech
    decides how soon the first audio can exist. 0 where there is no prompt, and for None: as it comes.
    """
    if first_block is None:
        return 0
    return (-first_block - num_prompt_tokens) % TOKENS_PER_BLOCK if num_prompt_tokens else 0


def num_prompt_blocks(num_tokens: int, *, num_layouts: int) -> int:
    """Blocks that a prompt takes at most, its lead-ins among them."""
    return num_layouts * _num_blocks(num_tokens)


def num_speech_blocks(num_tokens: int) -> int:
    """Blocks that a stream takes for its own speech at most, wherever in a block its prompt leaves off."""
    return _num_blocks(num_tokens) + 1


def _num_blocks(num_tokens: int) -> int:
    return -(-num_tokens // TOKENS_PER_BLOCK)
