"""When speech tokens become audio: the arithmetic of 50-frame blocks counted from the prompt's first frame. Pure."""

from voicegate.engine import units


def first_block_tokens(num_prompt_tokens: int) -> int:
    """Generated tokens in the block that the prompt leaves unfinished; a whole block where it leaves none."""
    return units.TOKENS_PER_BLOCK - num_prompt_tokens % units.TOKENS_PER_BLOCK


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


def max_blocks(num_prompt_tokens: int, num_tokens: int) -> int:
    """Blocks that a stream of `num_tokens` behind this prompt touches, the prompt's own included."""
    return -(-(num_prompt_tokens + num_tokens) // units.TOKENS_PER_BLOCK)
