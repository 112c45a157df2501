"""The corpus on disk and in memory: shards of utterances, and all of them as flat arrays on one device."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import torch

SAMPLES_PER_FRAME: Final = 480
FRAMES_PER_S: Final = 50
NUM_MELS: Final = 80


@dataclass(frozen=True, slots=True)
class Utterance:
    text: str
    voice: int
    mel: npt.NDArray[np.float16]  # [T, 80], T even
    samples: npt.NDArray[np.int16]  # [480 T]; none where the vocoder is not to learn from it
    pitch_hz: npt.NDArray[np.float16]  # [T]
    symbols: npt.NDArray[np.uint8]  # [T]
    words: npt.NDArray[np.uint8]  # [T]: how many are said, but for the last one


def write_shard(path: Path, utterances: Sequence[Utterance]) -> None:
    """Whole or not at all: trainers read while workers write."""
    partial = path.with_name(path.name + ".partial")
    with partial.open("wb") as file:
        np.savez(
            file,
            texts=np.frombuffer("\n".join(each.text for each in utterances).encode(), np.uint8),
            voices=np.array([each.voice for each in utterances], np.uint8),
            frames=np.array([len(each.mel) for each in utterances], np.int32),
            mel=np.concatenate([each.mel for each in utterances]),
            samples=np.concatenate([each.samples for each in utterances]),
            pitch_hz=np.concatenate([each.pitch_hz for each in utterances]),
            symbols=np.concatenate([each.symbols for each in utterances]),
            words=np.concatenate([each.words for each in utterances]),
        )
    partial.rename(path)


@dataclass(frozen=True, slots=True)
class Corpus:
    """Utterance i is frames `starts[i]` .. `starts[i] + frames[i]` of the flat arrays."""

    texts: list[str]
    voices: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]
    frames: npt.NDArray[np.int64]
    arrays: dict[str, torch.Tensor]  # those that were asked for

    def hours(self, voice: int) -> float:
        return float(self.frames[self.voices == voice].sum()) / FRAMES_PER_S / 3600


def shard_paths(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.npz"))


def load(paths: Iterable[Path], keys: Sequence[str], device: torch.device, *, max_hours: float = 1e9) -> Corpus:
    """At most `max_hours` of each voice, one voice after the other; `keys`: mel, samples, pitch_hz, symbols, words."""
    texts: list[str] = []
    voices: list[npt.NDArray[np.int64]] = []
    frames: list[npt.NDArray[np.int64]] = []
    parts: dict[str, list[torch.Tensor]] = {key: [] for key in keys}
    frames_of_voice: dict[int, int] = {}
    for path in paths:
        with np.load(path) as shard:
            voice = int(shard["voices"][0])
            if "samples" in keys and not len(shard["samples"]):
                continue
            if frames_of_voice.get(voice, 0) > max_hours * 3600 * FRAMES_PER_S:
                continue
            counts = shard["frames"].astype(np.int64)
            frames_of_voice[voice] = frames_of_voice.get(voice, 0) + int(counts.sum())
            texts += shard["texts"].tobytes().decode().split("\n")
            voices.append(shard["voices"].astype(np.int64))
            frames.append(counts)
            for key in keys:
                parts[key].append(torch.from_numpy(shard[key]).to(device))
    all_frames = np.concatenate(frames)
    return Corpus(
        texts=texts,
        voices=np.concatenate(voices),
        starts=np.cumsum(all_frames) - all_frames,
        frames=all_frames,
        arrays={key: torch.cat(tensors) for key, tensors in parts.items()},
    )
