"""What libopus's complexity costs and buys for speech: `python -m voicegate.bench.opus [--json FILE]`.

Time per 20 ms packet on one core, and how far the decoded sound is from what went in: the mean distance of log mel
spectra (natural log, the model's own 80 bands) and the bytes per packet. Recordings: the tiny model's voice prompts.
"""

import time
import wave
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from voicegate.bench import results_file
from voicegate.engine import units
from voicegate.engine.audio.opus import OpusEncoder, load_opuslib
from voicegate.engine.voices.features import mel_24k

_RECORDINGS = sorted(Path("models/tiny/voices").glob("*_prompt.wav"))
_COMPLEXITIES = (0, 1, 3, 5, 6, 7, 8, 10)
_BITRATES_BPS = (24_000, 32_000)
_FRAME = units.ms_to_samples(20)
_ROUNDS = 5


def _read(path: Path) -> npt.NDArray[np.float32]:
    with wave.open(str(path)) as file:
        pcm = np.frombuffer(file.readframes(file.getnframes()), np.int16)
    return (pcm[: len(pcm) // _FRAME * _FRAME] / np.float32(32768)).astype(np.float32)


def _round_trip(samples: npt.NDArray[np.float32], complexity: int, bitrate_bps: int) -> tuple[float, float, float]:
    """Microseconds a packet, bytes a packet, mean log mel distance."""
    opuslib = load_opuslib()
    seconds = []
    for _ in range(_ROUNDS):
        encoder = OpusEncoder(bitrate_bps=bitrate_bps, complexity=complexity)
        started_s = time.thread_time()
        packets = [encoder.encode(samples[at : at + _FRAME]) for at in range(0, len(samples), _FRAME)]
        seconds.append(time.thread_time() - started_s)
    decoder = opuslib.Decoder(units.SAMPLE_RATE_HZ, 1)
    pcm = b"".join(decoder.decode_float(packet, _FRAME) for packet in packets)
    heard = np.frombuffer(pcm, np.float32)[encoder.lookahead_samples :]
    length = len(heard)
    wanted = mel_24k(torch.from_numpy(samples[:length]))
    got = mel_24k(torch.from_numpy(heard.copy()))
    distance = float((wanted - got).abs().mean())
    return min(seconds) / len(packets) * 1e6, sum(map(len, packets)) / len(packets), distance


def measure() -> list[dict[str, Any]]:
    rows = []
    for bitrate_bps in _BITRATES_BPS:
        for complexity in _COMPLEXITIES:
            figures = np.mean([_round_trip(_read(path), complexity, bitrate_bps) for path in _RECORDINGS], axis=0)
            us, size, distance = figures.tolist()
            rows.append(
                {
                    "bitrate_bps": bitrate_bps,
                    "complexity": complexity,
                    "us_per_packet": round(us, 1),
                    "bytes_per_packet": round(size, 1),
                    "log_mel_distance": round(distance, 4),
                }
            )
    return rows


if __name__ == "__main__":
    results_file.main_of_rows(__doc__, measure)
