"""Precision: effects of rounding a checkpoint's weights, or of computing in less than float32, on each part's output.

The same inputs through the same code, once in float32 and once otherwise; the differences are in units of the output.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch

from voicegate.bench.full_size.source import generated_voice
from voicegate.engine import units
from voicegate.engine.checkpoint.storage import DTYPES, cast, stored_dtype
from voicegate.engine.flow.backend import FlowPrompt
from voicegate.engine.flow.model import FlowModel
from voicegate.engine.flow.prompt import load_prompt
from voicegate.engine.flow.torch.offline import render_offline
from voicegate.engine.llm.torch.kv_cache import KvCache, RaggedAttention, Span
from voicegate.engine.llm.torch.model import LlmModel
from voicegate.engine.model.config import LlmConfig, ModelConfig
from voicegate.engine.vocoder.backend import VocoderJob
from voicegate.engine.vocoder.model import VocoderModel
from voicegate.engine.vocoder.runner import VocoderRunner
from voicegate.engine.vocoder.torch.renderer import TorchRenderer

# Short, so that a CPU is done in minutes: the LLM sees 30 text and 96 speech positions, the flow 40 speech tokens.
_NUM_TEXT: Final = 30
_NUM_SPEECH: Final = 96
_PROMPT_TOKENS: Final = 25
_NEW_TOKENS: Final = 15

_FFT_SIZE: Final = 1_920

State = Mapping[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class Variant:
    """Dtype names of storage.DTYPES: of the weights in the file, and of the arithmetic."""

    stored: str
    computed: str


def variants(device: torch.device) -> tuple[Variant, ...]:
    """A CPU computes in float32 whatever the file holds."""
    rounded = (Variant("fp16", "fp32"), Variant("bf16", "fp32"))
    if device.type == "cpu":
        return rounded
    return (*rounded, Variant("fp16", "fp16"), Variant("fp16", "bf16"), Variant("bf16", "bf16"))


def rounded(state: State, dtype: str) -> dict[str, torch.Tensor]:
    """As a conversion stores them."""
    return {
        name: cast(name, tensor, stored_dtype(name, tuple(tensor.shape), DTYPES[dtype]))
        for name, tensor in state.items()
    }


@torch.inference_mode()
def compare_all(model: ModelConfig, load: Callable[[str], State], device: torch.device) -> Iterator[dict[str, Any]]:
    """One row a part and variant. `load` gives a part's float32 state; one part is in memory at a time."""
    torch.backends.cudnn.allow_tf32 = False  # its default, which would round float32's convolutions
    state = load("llm")
    reference = llm_outputs(model.llm, state, device, torch.float32)
    for variant in variants(device):
        outputs = llm_outputs(model.llm, rounded(state, variant.stored), device, DTYPES[variant.computed])
        yield _row("llm", variant, llm_errors(model.llm, reference, outputs))
    state = load("flow")
    mel = flow_mel(model, state, device, torch.float32)
    for variant in variants(device):
        other = flow_mel(model, rounded(state, variant.stored), device, DTYPES[variant.computed])
        yield _row("flow", variant, _errors("mel", mel, other))
    state = load("vocoder")
    samples = vocoder_samples(model, state, mel, device, torch.float32)
    for variant in variants(device):
        heard = vocoder_samples(model, rounded(state, variant.stored), mel, device, DTYPES[variant.computed])
        spectra = _errors("log_mel", log_mel(samples), log_mel(heard))
        yield _row("vocoder", variant, _errors("sample", samples, heard) | spectra)


def llm_outputs(
    config: LlmConfig, state: State, device: torch.device, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Hidden states [n, hidden] and logits [n, num_speech_rows] of one prefill, float32."""
    network = LlmModel(config, state, device=device, dtype=dtype)
    generator = np.random.default_rng(0)
    text = generator.integers(0, config.end_of_prompt_id, _NUM_TEXT).tolist()
    speech = generator.integers(0, config.speech_token_size, _NUM_SPEECH).tolist()
    rows = [network.first_speech_row + config.sos_id, *text]
    rows += [network.first_speech_row + id_ for id_ in (config.task_id, *speech)]
    cache = KvCache(config, num_slots=1, max_positions=len(rows), device=device, dtype=dtype)
    attention = RaggedAttention(cache, [Span(0, 0, len(rows))])
    hidden = network.forward(network.embed(torch.tensor(rows, device=device)), attention)
    return hidden.float().cpu(), network.logits(hidden).cpu()


def llm_errors(
    config: LlmConfig, reference: tuple[torch.Tensor, torch.Tensor], other: tuple[torch.Tensor, torch.Tensor]
) -> dict[str, float]:
    """Besides the plain errors: KL divergence in nats and how often the likeliest speech token stays the same."""
    log_p, log_q = (logits.double().log_softmax(-1) for logits in (reference[1], other[1]))
    best_p, best_q = (logits[:, : config.speech_token_size].argmax(-1) for logits in (reference[1], other[1]))
    return (
        _errors("hidden", reference[0], other[0])
        | _errors("logit", reference[1], other[1])
        | {
            "kl_nats": float((log_p.exp() * (log_p - log_q)).sum(-1).mean()),
            "same_best_token": float((best_p == best_q).double().mean()),
        }
    )


def flow_mel(model: ModelConfig, state: State, device: torch.device, dtype: torch.dtype) -> torch.Tensor:
    """[80, frames] float32 of the new tokens behind a short prompt."""
    flow = FlowModel(model.cosyvoice3_flow, state, device=device, dtype=dtype)
    tensors, _ = generated_voice(model, num_tokens=_PROMPT_TOKENS)
    prompt = FlowPrompt(tensors["speech_tokens"], tensors["mel"], tensors["embedding"])
    tokens = np.random.default_rng(1).integers(0, model.cosyvoice3_flow.vocab_size, _NEW_TOKENS).tolist()
    return render_offline(flow, load_prompt(flow, prompt), tokens, streaming=True, is_final=True).float().cpu()


def vocoder_samples(
    model: ModelConfig, state: State, mel: torch.Tensor, device: torch.device, dtype: torch.dtype
) -> torch.Tensor:
    """[480 T] float32 for mel [80, T]."""
    max_samples = mel.shape[1] * units.SAMPLES_PER_FRAME
    vocoder = VocoderModel(model.vocoder, state, max_samples=max_samples, device=device)
    runner = VocoderRunner(vocoder, TorchRenderer(vocoder, max_streams=1, dtype=dtype), max_streams=1)
    stream = runner.open()
    (samples,) = runner.run([VocoderJob(stream, mel.to(device), is_final=True)])
    return samples.float().cpu()


def log_mel(samples: torch.Tensor) -> torch.Tensor:
    """[80, frames]: natural log of the mel spectrum that the model itself is trained on, floored at 1e-5."""
    padded = torch.nn.functional.pad(samples[None], [(_FFT_SIZE - units.SAMPLES_PER_FRAME) // 2] * 2, mode="reflect")
    spectrum = torch.stft(
        padded[0],
        _FFT_SIZE,
        units.SAMPLES_PER_FRAME,
        window=torch.hann_window(_FFT_SIZE),
        center=False,
        return_complex=True,
    )
    return (_mel_filters() @ spectrum.abs()).clamp(min=1e-5).log()


def _mel_filters() -> torch.Tensor:
    """[80, bins]: triangles of equal area on Slaney's scale, linear below 1 kHz and logarithmic above."""
    top_hz = units.SAMPLE_RATE_HZ / 2
    log_step = np.log(6.4) / 27
    top_mel = 15 + np.log(top_hz / 1000) / log_step
    mels = np.linspace(0, top_mel, units.NUM_MELS + 2)
    edges_hz = np.where(mels < 15, mels * 200 / 3, 1000 * np.exp(log_step * (mels - 15)))
    bins_hz = np.linspace(0, top_hz, _FFT_SIZE // 2 + 1)
    left, middle, right = edges_hz[:-2, None], edges_hz[1:-1, None], edges_hz[2:, None]
    rising, falling = (bins_hz - left) / (middle - left), (right - bins_hz) / (right - middle)
    triangles = np.maximum(0, np.minimum(rising, falling)) * 2 / (right - left)
    return torch.from_numpy(triangles).float()


def _errors(name: str, reference: torch.Tensor, other: torch.Tensor) -> dict[str, float]:
    difference = (reference.double() - other.double()).abs()
    rms = float(reference.double().square().mean().sqrt())
    error_rms = float(difference.square().mean().sqrt())
    return {
        f"{name}_max_error": float(difference.max()),
        f"{name}_rms_error": error_rms,
        f"{name}_rms": rms,
        f"{name}_relative_error": error_rms / rms if rms else 0.0,
    }


def _row(part: str, variant: Variant, figures: Mapping[str, float]) -> dict[str, Any]:
    shown = {name: float(f"{value:.4g}") for name, value in figures.items()}
    return {"part": part, "stored": variant.stored, "computed": variant.computed, **shown}
