"""When speech tokens become a chunk, and which frames a chunk sees of those before it: Step-Audio2's arithmetic. Pure.

Chunks are counted from the first generated token. Their borders matter: a chunk's frames see each other both ways, and
nothing behind it. So they depend on the number of tokens alone, never on when they came.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from voicegate.engine.families.stepaudio2.flow.memory import Places

# Upstream's first three; its next would be 100, 200, ... Lower -> less to wait for, and each chunk sees less ahead;
# higher -> the LLM must be further ahead (`llm_ahead_tokens`), and a batch holds fewer streams.
CHUNK_TOKENS: Final = (15, 25, 50)

# Frames besides as many as the prompt has that upstream keeps when it trims.
TRIMMED_FRAMES: Final = 100


@dataclass(frozen=True, slots=True)
class ChunkSchedule:
    """Tokens of the first chunks; those after them are as long as the last."""

    sizes: tuple[int, ...] = CHUNK_TOKENS

    def longest_chunks(self, *, lookahead: int) -> tuple[int, ...]:
        """Tokens that a chunk may have which is a stream's last, ascending: none that is not is longer."""
        return tuple(sorted({size + lookahead - 1 for size in self.sizes}))

    def size(self, chunk: int) -> int:
        return self.sizes[min(chunk, len(self.sizes) - 1)]

    def next_chunk(self, chunk: int, num_waiting: int, *, lookahead: int, is_finished: bool) -> tuple[int, bool]:
        """Tokens that the chunk takes of those that wait, 0 if it is not ready; whether it is a stream's last.

        The last takes all there is, up to a whole chunk with all but one token of what it would look ahead at.
        """
        size = self.size(chunk)
        if num_waiting >= size + lookahead:
            return size, False
        return (num_waiting, True) if is_finished else (0, False)


def whole_context(known: Places, new: Places, *, num_prompt_frames: int) -> Places:
    """Later chunks see all of a chunk."""
    return np.concatenate((known, new))


def trimmed_context(known: Places, new: Places, *, num_prompt_frames: int) -> Places:
    """Later chunks see it as upstream trims it.

    It puts new frames before the older ones, then keeps as many from the front as the prompt has and 100 from the back:
    meant to be the prompt and the newest, it is the newest and the prompt's end.
    """
    ordered = np.concatenate((new, known))
    if len(ordered) <= num_prompt_frames + TRIMMED_FRAMES:
        return ordered
    return np.concatenate((ordered[:num_prompt_frames], ordered[-TRIMMED_FRAMES:]))
