"""Look at speech where nobody listens: spectrograms beside the teacher's, loudness, pauses and clicks.

    python -m models.tiny.training.look --model new-model --voice woman --output woman.png [--kokoro DIR]

One row a sentence: left the teacher, right the model; 0 to 12 kHz upwards, 100 dB from black to white.
"""

import argparse
import itertools
import struct
import zlib
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from voicegate.bench.quality import by_an_engine
from voicegate.bench.quality import parser as quality_parser
from voicegate.engine.interface import SpeakingMode

from .evaluate import RATE_HZ, teacher
from .held_out import HELD_OUT
from .voices import VOICES

_SIZE, _HOP = 512, 240
_SECONDS, _HEIGHT, _GAP = 5.5, 96, 4
_RANGE_DB: Final = 100.0
_QUIET_DB: Final = -50.0  # of 10 ms, below full scale
_FRAME: Final = RATE_HZ // 100

Bytes = npt.NDArray[np.uint8]


def spectrogram(pcm: npt.NDArray[np.int16]) -> Bytes:
    """[rows, columns]: brightness, the highest frequency on top, as wide as the longest sentence may be."""
    samples = np.zeros(int(_SECONDS * RATE_HZ))
    samples[: len(pcm)] = pcm[: len(samples)] / 32768
    starts = np.arange(0, len(samples) - _SIZE, _HOP)
    frames = samples[starts[:, None] + np.arange(_SIZE)] * np.hanning(_SIZE)
    decibels = 20 * np.log10(np.abs(np.fft.rfft(frames))[:, 1:] + 1e-6)
    return np.clip((_shrunk(decibels.T[::-1]) + 60) / _RANGE_DB * 255, 0, 255).astype(np.uint8)


def _shrunk(rows: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    edges = np.linspace(0, len(rows), _HEIGHT + 1).astype(int)
    return np.stack([rows[first:last].mean(0) for first, last in itertools.pairwise(edges)])


def png(brightness: Bytes) -> bytes:
    height, width = brightness.shape
    lines = np.concatenate((np.zeros((height, 1), np.uint8), brightness), axis=1).tobytes()
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)),
        (b"IDAT", zlib.compress(lines, 9)),
        (b"IEND", b""),
    )
    written = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(written)


def figures(pcm: npt.NDArray[np.int16]) -> dict[str, float]:
    """Loudness of the speech, its longest pause, and the largest step between samples of a pause: a click."""
    samples = pcm.astype(np.float64) / 32768
    frames = samples[: len(samples) // _FRAME * _FRAME].reshape(-1, _FRAME)
    level = 10 * np.log10((frames**2).mean(1) + 1e-12)
    is_quiet = level < _QUIET_DB
    spoken = np.flatnonzero(~is_quiet)
    inside = is_quiet[spoken[0] : spoken[-1] + 1]
    runs = np.diff(np.flatnonzero(np.concatenate(([True], ~inside, [True]))))
    steps = np.abs(np.diff(frames[is_quiet], axis=1))
    return {
        "seconds": len(samples) / RATE_HZ,
        "loudness_dbfs": float(10 * np.log10((frames[~is_quiet] ** 2).mean())),
        "longest_pause_ms": 10 * float(runs.max() - 1),
        "lead_ms": 10 * float(spoken[0]),
        "tail_ms": 10 * float(len(level) - 1 - spoken[-1]),
        "step_in_pauses": float(steps.max()) if steps.size else 0.0,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--voice", choices=sorted(VOICES), required=True)
    parser.add_argument("--kokoro", type=Path, help="a folder: kokoro.onnx, vocab.json, styles")
    parser.add_argument("--sentences", type=int, default=10)
    parser.add_argument("--output", type=Path, required=True, help="a picture, PNG")
    options = parser.parse_args()
    spoken = by_an_engine(quality_parser().parse_args(["--model", str(options.model)]))
    taught = teacher(options.voice, options.kokoro)
    rows: list[Bytes] = []
    found: dict[str, list[dict[str, Any]]] = {"teacher": [], "model": []}
    for seed, text in enumerate(HELD_OUT[:: len(HELD_OUT) // options.sentences]):
        pair = (taught(text, seed), spoken(text, options.voice, SpeakingMode.CLAUSE, seed))
        for who, pcm in zip(found, pair, strict=True):
            found[who].append(figures(pcm))
        left, right = map(spectrogram, pair)
        rows += [np.concatenate((left, np.full((_HEIGHT, _GAP), 255, np.uint8), right), axis=1)]
        rows += [np.full((_GAP, rows[0].shape[1]), 255, np.uint8)]
    options.output.write_bytes(png(np.concatenate(rows[:-1])))
    for who, each in found.items():
        means = {key: round(float(np.mean([row[key] for row in each])), 3) for key in each[0]}
        print(who, means, "largest step in a pause", round(max(row["step_in_pauses"] for row in each), 4), flush=True)


if __name__ == "__main__":
    main()
