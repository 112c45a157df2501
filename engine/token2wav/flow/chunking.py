"""When speech tokens become audio: the arithmetic of 50-frame blocks counted from the prompt's first frame. Pure."""

from typing import Final

from voicegate.engine import units
from voicegate.engine.model.config import FLOW_BLOCK_FRAMES

FRAMES_PER_BLOCK: Final = FLOW_BLOCK_FRAMES  # counted from the first frame of the prompt
TOKENS_PER_BLOCK: Final = FRAMES_PER_BLOCK // units.FRAMES_PER_TOKEN


def first_block_tokens(num_prompt_tokens: int) -> int:
    """Generated tokens in the block that the prompt leaves unfinished; a whole block where it leaves none."""
    return TOKENS_PER_BLOCK - num_prompt_tokens % TOKENS_PER_BLOCK


def prompt_trim(num_prompt_tokens: int, *, wanted: int, max_trim: int) -> int:
    """Tokens to cut off a prompt's end so that the first block is the smallest with at least `wanted` tokens.

    Where no trim reaches `wanted`, the largest. The flow is exact only at block borders, which are counted from the
    prompt's start: the prompt's length alone decides how soon the first audio can exist. Never trims more than
    `max_trim` nor the whole prompt.
    """
    sizes = {
        trim: first_block_tokens(num_prompt_tokens - trim) for trim in range(min(max_trim, num_prompt_tokens - 1) + 1)
    }
    reaching = [trim for trim, size in sizes.items() if size >= wanted]
    if reaching:
        return min(reaching, key=lambda trim: (sizes[trim], trim))
    return max(sizes, key=lambda trim: (sizes[trim], -trim), default=0)


def num_prompt_blocks(num_tokens: int) -> int:
    """That a prompt touches; of the last, if it is not full, each stream has one of its own."""
    return -(-num_tokens // TOKENS_PER_BLOCK)


def num_speech_blocks(num_tokens: int) -> int:
    """That a stream takes for its own speech at most, wherever in a block its prompt leaves off."""
    return num_prompt_blocks(num_tokens) + 1
