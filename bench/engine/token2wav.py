"""Flow and vocoder alone, of whichever family: speech tokens that are all there, to samples on the host.

    python -m voicegate.bench.engine.token2wav --model DIR [--device cuda] [--clips 26] [--json FILE]

As NVIDIA's recipe measures its token2wav: 26 clips of 170 s together, in blocks as served, one clip after the other;
then all of them together, which its server cannot. Tokens are random: the time depends on their number alone. The
recipe's offline form, a whole clip in one pass, is not what this engine does.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from voicegate.bench import environment, results_file
from voicegate.clients.bench.stats import summary
from voicegate.engine import units
from voicegate.engine.config import EngineConfig
from voicegate.engine.core.stages import Stages
from voicegate.engine.flow.backend import FlowStream
from voicegate.engine.load.build import load_stages, set_threads
from voicegate.engine.load.devices import resolved_for_device
from voicegate.engine.model.model_json import load_model_config
from voicegate.engine.vocoder.backend import VocoderJob, VocoderStream
from voicegate.engine.voices.store import load_voices

_SHORTEST_TOKENS: Final = 76
_LONGER_BY_TOKENS: Final = 7  # each clip than the one before: 26 clips of 163.5 in the mean


@dataclass(eq=False)
class Clip:
    flow: FlowStream
    vocoder: VocoderStream
    begun_s: float
    first_samples_s: float | None = None
    num_samples: int = 0


def clip_tokens(num_clips: int, speech_token_size: int) -> list[list[int]]:
    draw = np.random.default_rng(0)
    lengths = [_SHORTEST_TOKENS + _LONGER_BY_TOKENS * index for index in range(num_clips)]
    return [draw.integers(0, speech_token_size, size=length).tolist() for length in lengths]


def render(stages: Stages, clips: Sequence[Sequence[int]], voice: str, *, max_rows: int) -> list[Clip]:
    """All of them together, in batches of what is ready."""
    with stages.token2wav_lane.active():
        prompt = stages.voices[voice].flow_prompt.rendered
        begun_s = time.perf_counter()
        opened = [Clip(stages.flow.open(prompt), stages.vocoder.open(), begun_s) for _ in clips]
        for clip, token_ids in zip(opened, clips, strict=True):
            clip.flow.append(token_ids)
            clip.flow.finish()
        while chosen := _batch(stages, opened, max_rows):
            _advance(stages, chosen)
        for clip in opened:
            stages.flow.close(clip.flow)
            stages.vocoder.close(clip.vocoder)
    return opened


def _batch(stages: Stages, clips: Sequence[Clip], max_rows: int) -> list[Clip]:
    """Those that have been rendered least go first."""
    size = stages.flow.batch_size(max_rows)
    chosen: list[Clip] = []
    num_frames = 0
    for clip in sorted((clip for clip in clips if clip.flow.is_ready), key=lambda clip: clip.num_samples):
        num_frames += clip.flow.next_num_frames
        if chosen and (len(chosen) == size.num_rows or num_frames > size.num_frames):
            break
        chosen.append(clip)
    return chosen


def _advance(stages: Stages, clips: Sequence[Clip]) -> None:
    lane = stages.token2wav_lane
    batch = stages.flow.begin([clip.flow for clip in clips])
    while not batch.advance():
        pass
    jobs = [
        VocoderJob(clip.vocoder, mel, is_final=clip.flow.is_exhausted)
        for clip, mel in zip(clips, batch.result(), strict=True)
    ]
    samples = [lane.to_host(part) for part in stages.vocoder.run(jobs)]
    lane.mark().wait()
    now_s = time.perf_counter()
    for clip, part in zip(clips, samples, strict=True):
        clip.num_samples += len(part)
        if clip.first_samples_s is None and len(part):
            clip.first_samples_s = now_s


def figures(clips: Sequence[Clip], seconds: float) -> dict[str, Any]:
    audio_s = sum(clip.num_samples for clip in clips) / units.SAMPLE_RATE_HZ
    first_ms = [1000 * (clip.first_samples_s - clip.begun_s) for clip in clips if clip.first_samples_s is not None]
    return {
        "seconds": round(seconds, 3),
        "audio_s": round(audio_s, 2),
        "rtf": round(seconds / audio_s, 5),
        "first_samples_ms": summary(first_ms),
    }


def measure(stages: Stages, *, voice: str, num_clips: int, max_rows: int) -> dict[str, Any]:
    clips = clip_tokens(num_clips, stages.model.llm.speech_token_size)
    render(stages, clips[:2], voice, max_rows=max_rows)  # warm
    report = {}
    for name, groups in (("one after the other", [[clip] for clip in clips]), ("all together", [clips])):
        begun_s = time.perf_counter()
        rendered = [clip for group in groups for clip in render(stages, group, voice, max_rows=max_rows)]
        report[name] = figures(rendered, time.perf_counter() - begun_s)
        print(f"{name}: {report[name]}", flush=True)
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, metavar="DIR")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--clips", type=int, default=26)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    config = resolved_for_device(EngineConfig(model_dir=options.model, device=options.device))
    set_threads(config)
    model = load_model_config(config.model_dir)
    voices = load_voices(config.model_dir, model)
    with torch.inference_mode():
        stages = load_stages(config, model, voices)
        voice = model.default_voice or min(voices)
        report = measure(stages, voice=voice, num_clips=options.clips, max_rows=config.max_flow_batch)
    results_file.save({"environment": environment.describe(), "voice": voice, **report}, options.json)


if __name__ == "__main__":
    main()
