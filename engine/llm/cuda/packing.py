"""The one array of int32 words that a launch sends to the device: what each line feeds and what each sample draws.

    ... | record of sample 1 | record of sample 0 | record of line 0 | record of line 1 | ...
                                                  ^ origin

Samples grow downwards and lines upwards from one fixed origin, so that any launch is one contiguous copy and every
CUDA graph finds its records at the same addresses. No Triton here.
"""

import numpy as np
import numpy.typing as npt

LINE_WORDS = 4  # table row (USE_LAST_TOKEN: the slot's last token), slot, position, the sequence's number in its slot
SAMPLE_WORDS = 8  # line, slot, flags, place in the history ring, and two float64 uniforms

USE_LAST_TOKEN = -1

# Flags of a sample.
IS_IGNORING_EOS = 1
IS_FORCED_FILL = 2  # nothing is drawn that counts: fill goes into the history
COUNTS_AS_FILL = 4  # bistream: a special token is remembered as fill
IS_FRESH = 8  # the first draw of a sequence: what the slot remembers is not its own
GOES_ON = 16  # feeds what it drew last: where that was an end, nothing more is drawn

Words = npt.NDArray[np.int32]


class WorkLayout:
    """Where records lie for at most `max_lines` and `max_samples`."""

    def __init__(self, *, max_lines: int, max_samples: int) -> None:
        self.max_lines, self.max_samples = max_lines, max_samples
        self.origin = SAMPLE_WORDS * max_samples
        self.num_words = self.origin + LINE_WORDS * max_lines

    def span(self, num_lines: int, num_samples: int) -> tuple[int, int]:
        """Begin and end of the words of so many records."""
        return self.origin - SAMPLE_WORDS * num_samples, self.origin + LINE_WORDS * num_lines

    def lines(self, words: Words, num_lines: int) -> Words:
        """View [num_lines, LINE_WORDS]."""
        return words[self.origin : self.origin + LINE_WORDS * num_lines].reshape(num_lines, LINE_WORDS)

    def samples(self, words: Words, num_samples: int) -> Words:
        """View [num_samples, SAMPLE_WORDS] in the samples' order."""
        return words[self.origin - SAMPLE_WORDS * num_samples : self.origin].reshape(num_samples, SAMPLE_WORDS)[::-1]

    def pad(self, words: Words, *, padding_slot: int) -> None:
        """Fill with records that touch only the padding slot."""
        self.lines(words, self.max_lines)[:] = padding_line(padding_slot)
        self.samples(words, self.max_samples)[:] = padding_sample(padding_slot)


def padding_line(slot: int) -> Words:
    return np.array([0, slot, 0, 0], np.int32)


def padding_sample(slot: int) -> Words:
    return np.array([0, slot, IS_FRESH, 0, 0, 0, 0, 0], np.int32)
