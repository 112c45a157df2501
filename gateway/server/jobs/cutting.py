"""Cuts a long text into parts, each of which is one utterance. Pure, but for the pauses that it makes."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from voicegate.engine.preview import sentences

# About 40 s of speech, in UTF-8: a Chinese character has three bytes, and takes as long to say as three letters.
# Lower -> more seams, where the voice starts afresh; higher -> more is made again after a kill, and a part is longer
# than the lead of 60 s, from where on it is made no faster than it plays.
PART_BYTES: Final = 600
# From here on a part ends where its paragraph does.
_LEAST_BYTES: Final = PART_BYTES // 2
# Pauses, in times of the work between them. This thread's work holds up the event loop at each of its system calls, for
# up to 5 ms. Lower -> first audio of live streams is later meanwhile; higher -> the request waits longer.
_PAUSES: Final = 3.0


@dataclass(frozen=True, slots=True)
class Part:
    input: int  # its place among the job's inputs
    text: str


def parts_of(inputs: Sequence[str], language: str, *, has_breaks: bool) -> list[Part]:
    """Takes seconds for a book: for a thread. No part has text of two inputs; blank ones are left out."""
    return [
        Part(number, text)
        for number, whole in enumerate(inputs)
        for text in _joined(_sentences(whole, language, has_breaks))
        if text.strip()
    ]


def _sentences(text: str, language: str, has_breaks: bool) -> Iterator[str]:
    begun_s = time.thread_time()
    for some in sentences(text, language, has_breaks=has_breaks):
        yield from some
        time.sleep(_PAUSES * (time.thread_time() - begun_s))
        begun_s = time.thread_time()


def _joined(pieces: Iterator[str]) -> Iterator[str]:
    part, num_bytes = "", 0
    for piece in pieces:
        piece_bytes = len(piece.encode())
        is_full = num_bytes + piece_bytes > PART_BYTES
        if num_bytes and (is_full or (num_bytes >= _LEAST_BYTES and _parts_paragraphs(part, piece))):
            yield part
            part, num_bytes = "", 0
        part += piece
        num_bytes += piece_bytes
    yield part


def _parts_paragraphs(before: str, after: str) -> bool:
    """Whether a blank line is between them."""
    blanks = before[len(before.rstrip()) :] + after[: len(after) - len(after.lstrip())]
    return blanks.count("\n") > 1
