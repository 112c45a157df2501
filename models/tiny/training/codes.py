"""Store a corpus's texts and codes, which are all that the LLM learns from: 14 MB for 100 hours.

    python -m models.tiny.training.codes --corpus corpus --state state --hours 50 --output codes.npz

`llm --corpus codes.npz` goes on where neither the corpus nor a GPU is at hand. `llm --corpus codes.npz corpus` learns
from both.
"""

import argparse
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import torch

from . import shards, speech_tokenizer

_LOW_BITS: Final = 8  # stored apart from the rest: the file is a tenth smaller


@dataclass(frozen=True, slots=True)
class Told:
    """Utterances: what was said, by which voice, its codes, and how many words are said before each of these."""

    texts: list[str]
    voices: npt.NDArray[np.int64]
    codes: list[npt.NDArray[np.int64]]
    words: list[npt.NDArray[np.uint8]]

    def hours(self, voice: int) -> float:
        lengths = [len(each) for each, number in zip(self.codes, self.voices, strict=True) if number == voice]
        return sum(lengths) * 2 / shards.FRAMES_PER_S / 3600


def of_corpus(corpus_path: Path, state: Path, device: torch.device, hours: float) -> Told:
    corpus = shards.load(shards.shard_paths(corpus_path), ("mel", "words"), device, max_hours=hours)
    codes = speech_tokenizer.all_codes(speech_tokenizer.trained(state, device), corpus).cpu().numpy()
    words = corpus.arrays["words"][::2].cpu().numpy()
    begins = corpus.starts[1:] // 2
    return Told(corpus.texts, corpus.voices, np.split(codes.astype(np.int64), begins), np.split(words, begins))


def joined(parts: Sequence[Told]) -> Told:
    return Told(
        list(itertools.chain(*(each.texts for each in parts))),
        np.concatenate([each.voices for each in parts]),
        list(itertools.chain(*(each.codes for each in parts))),
        list(itertools.chain(*(each.words for each in parts))),
    )


def save(path: Path, told: Told) -> None:
    codes = np.concatenate(told.codes)
    np.savez_compressed(
        path,
        low=(codes % (1 << _LOW_BITS)).astype(np.uint8),
        high=(codes >> _LOW_BITS).astype(np.uint8),
        lengths=np.array([len(each) for each in told.codes], np.uint16),
        voices=told.voices.astype(np.uint8),
        words=np.concatenate(told.words),
        texts=np.frombuffer("\n".join(told.texts).encode(), np.uint8),
    )


def load(path: Path) -> Told:
    with np.load(path) as stored:
        if "words" not in stored:
            raise SystemExit(f"{path} does not tell where words end: store it anew from its corpus")
        codes = stored["low"] + (stored["high"].astype(np.int64) << _LOW_BITS)
        ends = np.cumsum(stored["lengths"].astype(np.int64))
        texts = stored["texts"].tobytes().decode().split("\n")
        words = np.split(stored["words"], ends[:-1])
        return Told(texts, stored["voices"].astype(np.int64), np.split(codes, ends[:-1]), words)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True, help="a folder of shards")
    parser.add_argument("--state", type=Path, required=True, help="the speech tokenizer's")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--hours", type=float, default=1e9, help="of each voice, at most")
    parser.add_argument("--device", type=torch.device, default=torch.device("cpu"))
    options = parser.parse_args(arguments)
    save(options.output, of_corpus(options.corpus, options.state, options.device, options.hours))


if __name__ == "__main__":
    main()
