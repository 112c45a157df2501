"""Have a teacher speak the text: shards of mel, samples, pitch, phonemes and words.

    python -m models.tiny.training.corpus --texts texts.txt --voice woman --output corpus --workers 12 --minutes 2

Stops after `--minutes`; started again with a later `--first-line` it goes on. `--voice` is one of voices.VOICES.
"""

import argparse
import multiprocessing
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
import torch

from voicegate.engine.voices.features import mel_24k

from .hibari_teacher import Hibari
from .kokoro_teacher import kokoro
from .shards import FRAMES_PER_S, SAMPLES_PER_FRAME, Utterance, write_shard
from .teachers import PITCH_HOP, Spoken, Teacher
from .voices import VOICES, TaughtVoice

_LEAD_SAMPLES, _TAIL_SAMPLES = 1_920, 3_840  # of quiet before and after speech: 80 and 160 ms
_QUIET: Final = 0.02  # of the loudest 10 ms
_RMS: Final = 0.08  # of the speech, pauses left out
_PEAK: Final = 0.95
_UTTERANCES_PER_SHARD: Final = 64
_MAX_PHONEMES: Final = 400


def utterance(spoken: Spoken, text: str, voice: int) -> Utterance:
    """Cut to the speech, brought to one loudness, analysed. An even number of mel frames."""
    samples, first = _framed(spoken.samples)
    mel = mel_24k(torch.from_numpy(samples))
    centres = first + np.arange(len(mel)) * SAMPLES_PER_FRAME + SAMPLES_PER_FRAME // 2
    index = np.clip(centres // PITCH_HOP, 0, len(spoken.pitch_hz) - 1)
    is_inside = (centres >= 0) & (centres < len(spoken.samples))
    return Utterance(
        text=text,
        voice=voice,
        mel=mel.numpy().astype(np.float16),
        samples=(samples * 32767).astype(np.int16),
        pitch_hz=np.where(is_inside, spoken.pitch_hz[index], 0).astype(np.float16),
        symbols=np.where(is_inside, spoken.symbols[index], 0).astype(np.uint8),
        words=spoken.words[index],
    )


def _framed(samples: np.ndarray[tuple[int], np.dtype[np.float32]]) -> tuple[np.ndarray, int]:
    """Whole pairs of frames with quiet at both ends, and where in the teacher's samples they begin."""
    blocks = samples[: len(samples) // 240 * 240].reshape(-1, 240)
    energy = np.sqrt((blocks**2).mean(1))
    loud = np.flatnonzero(energy > _QUIET * energy.max())
    first = int(loud[0]) * 240 - _LEAD_SAMPLES
    last = (int(loud[-1]) + 1) * 240 + _TAIL_SAMPLES
    num_samples = -(-(last - first) // (2 * SAMPLES_PER_FRAME)) * 2 * SAMPLES_PER_FRAME
    framed = np.zeros(num_samples, np.float32)
    begin, end = max(first, 0), min(first + num_samples, len(samples))
    framed[begin - first : end - first] = samples[begin:end]
    active = energy[energy > 0.1 * energy.max()]
    gain = _RMS / float(np.sqrt((active**2).mean()))
    return np.clip(framed * gain, -_PEAK, _PEAK), first


def speaker_of(voice: TaughtVoice, reader: Hibari, kokoro_folder: Path | None, device: torch.device) -> Teacher:
    """The voice's teacher. Raises SystemExit where Kokoro-82M's folder is not told."""
    if voice.style is None:
        return reader
    if kokoro_folder is None:
        raise SystemExit(f"{voice.style} is a voice of Kokoro-82M: --kokoro DIR")
    return kokoro(kokoro_folder, voice.style, device)


def _work(options: argparse.Namespace, worker: int) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(worker)
    torch.backends.cuda.matmul.allow_tf32 = True
    deadline = time.monotonic() + 60 * options.minutes
    voice = VOICES[options.voice]
    reader = Hibari()
    cards = torch.cuda.device_count() if options.device == "cuda" else 0
    device = torch.device("cuda", worker % cards) if cards else torch.device("cpu")
    speaker = speaker_of(voice, reader, options.kokoro, device)
    lines_at_once = options.per_shard if speaker is reader else options.lines_at_once
    shards = _Shards(options, worker)
    texts = options.texts.read_text().splitlines()[options.first_line + worker :: options.workers]
    for first in range(0, len(texts), lines_at_once):
        read = ((text, reader.phonemes(text)) for text in texts[first : first + lines_at_once])
        chosen = [(text, phonemes) for text, phonemes in read if 2 < len(phonemes) < _MAX_PHONEMES]
        for index, spoken in speaker.speak_all([phonemes for _, phonemes in chosen]):
            shards.add(utterance(spoken, chosen[index][0], voice.number))
            if time.monotonic() > deadline:
                shards.close()
                return
    shards.close()


class _Shards:
    """Writes the speech of one worker, in files of `--per-shard` utterances."""

    def __init__(self, options: argparse.Namespace, worker: int) -> None:
        self._options, self._worker = options, worker
        self._frames_with_samples = options.samples_hours * 3600 * FRAMES_PER_S / options.workers
        self._done: list[Utterance] = []
        self._num_shards = 0

    def add(self, spoken: Utterance) -> None:
        self._done.append(spoken)
        if len(self._done) == self._options.per_shard:
            self.close()

    def close(self) -> None:
        if not self._done:
            return
        if self._frames_with_samples <= 0:
            self._done = [replace(each, samples=each.samples[:0]) for each in self._done]
        self._frames_with_samples -= sum(len(each.mel) for each in self._done)
        name = f"{self._options.voice}-{self._num_shards:04}-{self._options.first_line:07}-{self._worker:03}.npz"
        write_shard(self._options.output / name, self._done)
        self._num_shards += 1
        self._done = []


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--voice", choices=sorted(VOICES), required=True)
    parser.add_argument("--kokoro", type=Path, help="a folder: kokoro.onnx, vocab.json, styles")
    parser.add_argument(
        "--device", choices=("cpu", "cuda"), default="cpu", help="of Kokoro; its workers share all cards"
    )
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=1e9)
    parser.add_argument("--first-line", type=int, default=0)
    parser.add_argument("--samples-hours", type=float, default=1e9, help="mels alone after these")
    parser.add_argument("--lines-at-once", type=int, default=1536, help="of which Kokoro takes equal lengths together")
    parser.add_argument("--per-shard", type=int, default=_UTTERANCES_PER_SHARD)
    return parser


def main() -> None:
    options = parser().parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_work, args=(options, worker)) for worker in range(options.workers)]
    for process in workers:
        process.start()
    for process in workers:
        process.join()
    if any(process.exitcode for process in workers):
        raise SystemExit("a worker failed")


if __name__ == "__main__":
    main()
