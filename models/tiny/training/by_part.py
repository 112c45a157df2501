"""Measure which part loses words: a teacher's speech, taken apart and made again, without the LLM.

    python -m models.tiny.training.by_part --state state --like models/tiny --kokoro DIR --sentences 14

| part | what is made again |
|---|---|
| `vocoder` | the teacher's mel -> samples |
| `codes` | the teacher's codes -> mel by the tokenizer's own decoder, which draws nothing -> samples |
| `flow` | the teacher's codes -> mel by the flow, after the voice's prompt -> samples |
| `few` | the same by the flow of few steps without guidance, which `distil` has taught |
"""

import argparse
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch

from voicegate.engine.flow.euler import cosine_schedule, euler_step
from voicegate.engine.model.model_json import load_model_config
from voicegate.engine.voices.features import mel_24k

from . import flow, run, speech_tokenizer
from .evaluate import measured, teacher
from .held_out import HELD_OUT, QUESTIONS
from .hift import LOOK_RIGHT, Vocoder
from .voices import VOICES

_GUIDANCE: Final = 0.7
_BEGINNING_SAMPLES: Final = 240  # 10 ms: a vocoder that has not learnt to begin makes a tick there

Pcm = npt.NDArray[np.int16]
MelOf = Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor]


def mel_of(pcm: Pcm) -> torch.Tensor:
    """[T, 80], T even."""
    mel = mel_24k(torch.from_numpy(pcm.astype(np.float32) / 32768))
    return mel[: len(mel) // 2 * 2]


class Parts:
    """Each takes a sentence's mel, the prompt's and the voice's number, and gives the mel made again."""

    def __init__(self, state: Path, like: Path, *, euler_steps: int, few_steps: int = 5) -> None:
        self._state = state
        self._vocoder = Vocoder(load_model_config(like).vocoder)
        self._vocoder.load_state_dict(run.averaged_weights(state, "vocoder"), strict=False)
        self._encoder = speech_tokenizer.trained(state, torch.device("cpu"))
        # Stage, Euler steps and guidance of each part that is a flow.
        self._flows = {"flow": ("flow", euler_steps, _GUIDANCE), "few": ("distilled_flow", few_steps, 0.0)}

    def of(self, name: str) -> MelOf:
        if name == "vocoder":
            return self._as_it_is
        if name == "codes":
            tokenizer = speech_tokenizer.Tokenizer(len(VOICES)).eval()
            tokenizer.load_state_dict(run.averaged_weights(self._state, "tokenizer"))
            return partial(self._decoded, tokenizer)
        stage, steps, guidance = self._flows[name]
        if not (self._state / f"{stage}.pt").exists():
            raise SystemExit(f"{name}: {self._state} has no {stage}.pt")
        model = flow.Flow().eval()
        model.load_state_dict(run.averaged_weights(self._state, stage), strict=False)
        return partial(self._flowed, model, steps, guidance)

    def _as_it_is(self, mel: torch.Tensor, prompt: torch.Tensor, voice: int) -> torch.Tensor:
        return mel

    def _decoded(
        self, tokenizer: speech_tokenizer.Tokenizer, mel: torch.Tensor, prompt: torch.Tensor, voice: int
    ) -> torch.Tensor:
        decoded, _ = tokenizer.told(self._codes(mel)[None], torch.tensor([voice]))
        return decoded[0].T * speech_tokenizer.MEL_SCALE

    def _flowed(
        self, model: flow.Flow, steps: int, guidance: float, mel: torch.Tensor, prompt: torch.Tensor, voice: int
    ) -> torch.Tensor:
        codes = torch.cat((self._codes(prompt), self._codes(mel)))[None]
        mu, speaker = model.conditions(codes, flow.speaker_embeddings()[voice][None])
        cond = torch.cat((prompt, torch.zeros_like(mel)))[None]
        mask = flow.block_mask(cond.shape[1], mel.device, is_streaming=True)
        schedule = cosine_schedule(steps)
        x = torch.randn_like(cond)
        both = [torch.cat((each, torch.zeros_like(each))) for each in (mu, speaker, cond)]
        for time, width in zip(schedule.times, schedule.widths, strict=True):
            velocities = model.decoder.estimator(torch.cat((x, x)), *both, torch.full((2,), time), mask)
            x = euler_step(x, velocities[:, None], width=width, cfg_rate=guidance)
        return x[0, len(prompt) :]

    def _codes(self, mel: torch.Tensor) -> torch.Tensor:
        return speech_tokenizer.codes_of(self._encoder, mel).long()

    def samples(self, mel: torch.Tensor) -> Pcm:
        """[T, 80] -> [480 T]."""
        mel = mel.T[None]
        mel = torch.cat((mel, mel[:, :, -1:].expand(-1, -1, LOOK_RIGHT)), dim=2)
        weights = self._vocoder.folded()
        hertz = self._vocoder.pitch(weights, mel[:, :, :-1])
        noise = torch.rand(1, hertz.shape[1] * 480, 9)
        source = self._vocoder.spectra(self._vocoder.source(weights, hertz, torch.rand(1, 9), noise))
        made = self._vocoder.samples(self._vocoder.filter(weights, mel, source))
        pcm: Pcm = (made[0].clamp(-0.99, 0.99) * 32767).numpy().astype(np.int16)
        return pcm


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--like", type=Path, required=True, help="a model directory of the same shapes")
    parser.add_argument("--kokoro", type=Path, help="a folder: kokoro.onnx, vocab.json, styles")
    parser.add_argument("--parts", nargs="+", default=["vocoder", "codes", "flow"])
    parser.add_argument("--euler-steps", type=int, default=10, help="of the flow, with guidance")
    parser.add_argument("--few-steps", type=int, default=5, help="of the distilled flow")
    parser.add_argument("--sentences", type=int, default=len(HELD_OUT))
    parser.add_argument("--questions", action="store_true", help="the held-out questions alone")
    options = parser.parse_args()
    parts = Parts(options.state, options.like, euler_steps=options.euler_steps, few_steps=options.few_steps)
    sentences = QUESTIONS if options.questions else HELD_OUT[:: len(HELD_OUT) // options.sentences]
    for name, voice in VOICES.items():
        taught = teacher(name, options.kokoro)
        prompt = mel_of(taught(voice.prompt, 0))
        spoken = {text: mel_of(taught(text, seed)) for seed, text in enumerate(sentences)}
        for part in options.parts:
            result = part_measured(parts, part, spoken, prompt, voice.number)
            print({"voice": name, "part": part} | {key: each for key, each in result.items() if key != "sentences"})


def part_measured(
    parts: Parts, part: str, spoken: dict[str, torch.Tensor], prompt: torch.Tensor, voice: int
) -> dict[str, Any]:
    """`spoken`: the teacher's mel of each sentence."""
    made = parts.of(part)
    powers: list[float] = []

    def speak(text: str, seed: int) -> Pcm:
        torch.manual_seed(seed)
        pcm = parts.samples(made(spoken[text], prompt, voice))
        powers.append(float(np.square(pcm[:_BEGINNING_SAMPLES] / 32768).mean()))
        return pcm

    result = measured(speak, tuple(spoken))
    return result | {"first_10_ms_dbfs": round(10 * math.log10(sum(powers) / len(powers) + 1e-12), 1)}


if __name__ == "__main__":
    main()
