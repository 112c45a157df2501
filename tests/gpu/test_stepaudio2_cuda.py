"""Step-Audio2's token2wav on a CUDA device: golden data, graphs against eager, streams against each other, the engine.

The numbers that bfloat16 and 8-bit contexts cost are printed: run with -s.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import pytest
import torch

from tests.gpu.test_engine_cuda import BASE, OTHERS, TEXT, crowd, pcm, spectral_distance
from tests.support.stepaudio2 import (
    CPU,
    GoldenFlow,
    generated,
    golden_flow,
    golden_prompt,
    golden_vocoder,
    load_arrays,
    normal,
)
from tests.support.stepaudio2_engine import config_for, flow_of, stages_of, write_model
from tests.support.stepaudio2_full_size import full_size_model
from tests.support.tiny_engine import HandDrivenEngine
from tests.support.vocoder_errors import log_spectrum_error, relative_error
from tests.unit.engine.families.stepaudio2.test_flow_runner import SCHEDULE, STREAMS, opened, tokens_of
from tests.unit.engine.families.stepaudio2.test_vocoder_streams import mel_of
from voicegate.engine import units
from voicegate.engine.families.stepaudio2.flow.bucket_solver import BucketConfig
from voicegate.engine.families.stepaudio2.flow.chunking import ChunkSchedule, trimmed_context
from voicegate.engine.families.stepaudio2.flow.cuda.step import FusedStep
from voicegate.engine.families.stepaudio2.vocoder.bucket_caller import CallConfig
from voicegate.engine.families.stepaudio2.vocoder.cuda.kernel_decoder import kernel_decoder
from voicegate.engine.families.stepaudio2.vocoder.model import StepAudio2Vocoder
from voicegate.engine.families.stepaudio2.vocoder.network import RowLengths
from voicegate.engine.families.stepaudio2.vocoder.weights import vocoder_shapes
from voicegate.engine.interface import Done
from voicegate.engine.load.build import load_stages
from voicegate.engine.model.model_json import load_model_config
from voicegate.engine.vocoder.backend import VocoderJob
from voicegate.engine.vocoder.runner import VocoderRunner
from voicegate.engine.voices.store import load_voices

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

CUDA = torch.device("cuda")
# Float32, of two correct implementations of the golden modules.
FLOAT32_ATOL = 1e-4
CALLS = CallConfig(row_buckets=(1, 4))
CALLS_EAGER = replace(CALLS, has_graphs=False)


def flow_on_gpu(schedule: tuple[int, ...] = SCHEDULE, *, has_graphs: bool = True, **options: object) -> GoldenFlow:
    buckets = BucketConfig(
        token_buckets=ChunkSchedule(schedule).longest_chunks(lookahead=3),
        row_buckets=(1, 2, 4),
        known_buckets=(64, 512),
        has_graphs=has_graphs,
    )
    options = {"make_step": FusedStep} | options
    flow = golden_flow(schedule, buckets=buckets, device=CUDA, **options)  # type: ignore[arg-type]
    flow.runner.graphs.capture()
    return flow


def vocoder_on_gpu(*, has_graphs: bool = True) -> VocoderRunner:
    vocoder = golden_vocoder(calls=replace(CALLS, has_graphs=has_graphs), device=CUDA)
    vocoder.graphs.capture()
    return vocoder


def together(flow: GoldenFlow) -> list[torch.Tensor]:
    """Streams of different age in batches: [80, n] each, on the CPU."""
    streams = [opened(flow, prompt, tokens_of(seed, count)) for prompt, seed, count in STREAMS]
    mels: list[list[torch.Tensor]] = [[] for _ in streams]
    mels[0] += flow.render([streams[0]])
    while ready := [index for index, stream in enumerate(streams) if stream.is_ready]:
        for index, mel in zip(ready, flow.render([streams[index] for index in ready]), strict=True):
            mels[index].append(mel)
    for stream in streams:
        flow.runner.close(stream)
    return [torch.cat(parts, dim=1).cpu() for parts in mels]


def near(actual: torch.Tensor, expected: torch.Tensor, atol: float = FLOAT32_ATOL) -> None:
    torch.testing.assert_close(actual.cpu(), expected.cpu(), rtol=0, atol=atol)


@pytest.mark.parametrize("name", ["flow_stream", "flow_trim"])
def test_golden_streams(name: str) -> None:
    golden = load_arrays(f"{name}.npz")
    schedule = {"flow_stream": (5, 8, 4), "flow_trim": (15, 25, 50, 12)}[name]
    flow = flow_on_gpu(schedule, context=trimmed_context)
    stream = flow.runner.open(flow.runner.prepare(golden_prompt(golden)))
    stream.append(golden["tokens"].tolist())
    stream.finish()
    chunk, worst = 0, 0.0
    while stream.is_ready:
        (mel,) = flow.render([stream])
        worst = max(worst, float((mel.cpu() - golden[f"chunk{chunk}_mel"][0]).abs().max()))
        chunk += 1
    print(f"\nfloat32 against {name}: max {worst:.1e}")
    assert f"chunk{chunk}_mel" not in golden
    assert worst < FLOAT32_ATOL
    assert flow.runner.graphs.num_launches == 11 * chunk


def test_graphs_are_what_eager_is_and_what_a_cpu_is() -> None:
    graphs, eager = together(flow_on_gpu()), together(flow_on_gpu(has_graphs=False))
    cpu = together(golden_flow(SCHEDULE))
    for replayed, launched, expected in zip(graphs, eager, cpu, strict=True):
        print(f"\ngraphs against eager: max {(replayed - launched).abs().max():.1e}")
        near(replayed, launched, 1e-5)
        near(replayed, expected)


def test_kernels_are_what_torchs_operations_are() -> None:
    kernels, plain = together(flow_on_gpu()), together(flow_on_gpu(make_step=None))
    for fused, expected in zip(kernels, plain, strict=True):
        print(f"\nfloat32, kernels against torch's operations: max {(fused - expected).abs().max():.1e}")
        near(fused, expected)


def test_a_stream_is_alone_what_it_is_among_others_and_memory_is_used_again() -> None:
    """Free blocks are NaN."""
    flow = flow_on_gpu(num_blocks=60)
    prompts_hold = sum(flow.runner.num_prompt_blocks(prompt) for prompt, _, _ in STREAMS)
    among = together(flow)
    assert flow.memory.num_free == 60 - prompts_hold
    for mel, (prompt, seed, count) in zip(among, STREAMS, strict=True):
        stream, parts = opened(flow, prompt, tokens_of(seed, count)), []
        while stream.is_ready:
            parts += flow.render([stream])
        flow.runner.close(stream)
        flow.runner.release(stream.prompt)
        near(torch.cat(parts, dim=1), mel)


def test_what_an_8_bit_context_costs() -> None:
    exact = together(golden_flow(SCHEDULE))
    rounded = together(flow_on_gpu(kv_dtype=torch.float8_e4m3fn))
    errors = [(mel - expected).abs().mean() for mel, expected in zip(rounded, exact, strict=True)]
    print(f"\nfloat8 context, float32 else: mean error of mel {max(errors):.1e}")
    assert 1e-5 < max(errors) < 1e-2


def rendered(vocoder: VocoderRunner) -> list[torch.Tensor]:
    """Three streams through three calls, a padded row and one beyond all buckets among them."""
    sizes = {"a": [20, 50, 40], "b": [30, 100, 21], "c": [12, 130, 9]}
    places = {name: vocoder.open() for name in sizes}
    parts: dict[str, list[torch.Tensor]] = {name: [] for name in sizes}
    for call in range(3):
        jobs = [
            VocoderJob(places[name], mel_of(name, sum(frames)).split(frames, dim=1)[call], call == 2)
            for name, frames in sizes.items()
        ]
        jobs = [replace(job, mel=job.mel.to(CUDA)) for job in jobs] if vocoder.graphs.num_buckets else jobs
        for name, samples in zip(sizes, vocoder.run(jobs), strict=True):
            parts[name].append(samples.cpu())
    for place in places.values():
        vocoder.close(place)
    return [torch.cat(each) for each in parts.values()]


def test_the_vocoders_graphs_are_what_eager_is_and_what_a_cpu_is() -> None:
    vocoder = vocoder_on_gpu()
    graphs, again, eager = rendered(vocoder), rendered(vocoder), rendered(vocoder_on_gpu(has_graphs=False))
    assert vocoder.graphs.num_launches > 0
    cpu = rendered(golden_vocoder(device=CPU))
    for replayed, second, launched, expected in zip(graphs, again, eager, cpu, strict=True):
        near(second, replayed, 1e-5)
        near(replayed, launched, 1e-5)
        print(f"\nvocoder, float32 against a CPU: max {(replayed - expected).abs().max():.1e}")
        near(replayed, expected, 2e-3)


def kernel_vocoder(precision: str, *, has_graphs: bool = True) -> VocoderRunner:
    """By the first family's kernels."""
    make_decode = partial(kernel_decoder, precision=precision, num_multiprocessors=132)
    calls = replace(CALLS, has_graphs=has_graphs)
    vocoder = golden_vocoder(calls=calls, device=CUDA, make_decode=make_decode)
    vocoder.graphs.capture()
    return vocoder


def errors(actual: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> tuple[float, float]:
    """Relative, and of the log spectrum: of all rows one behind the other."""
    samples, exact = torch.cat(list(actual)), torch.cat(list(expected))
    return relative_error(samples, exact), log_spectrum_error(samples, exact)


# Errors of the signal and of its log spectrum. The first family's at the released size: ADR 0014.
MOST: Final = {"float32": (1e-3, 1e-3), "float16": (0.03, 0.1), "bfloat16": (0.3, 0.6)}


@pytest.mark.parametrize("precision", MOST)
def test_the_first_familys_kernels_are_near_torchs_operations(precision: str) -> None:
    plain = golden_vocoder(calls=CALLS_EAGER, device=CUDA)
    relative, spectral = errors(rendered(kernel_vocoder(precision)), rendered(plain))
    print(f"\nvocoder's kernels, {precision}: {relative:.2e} of the signal, log spectrum {spectral:.2e}")
    assert relative < MOST[precision][0]  # false for NaN
    assert spectral < MOST[precision][1]


def test_the_first_familys_kernels_make_the_same_in_a_graph_and_whatever_ran_before() -> None:
    """But for what is beyond all buckets: cuDNN's, whose transposed convolutions add up in any order."""
    vocoder = kernel_vocoder("float16")
    graphs, again, eager = rendered(vocoder), rendered(vocoder), rendered(kernel_vocoder("float16", has_graphs=False))
    assert vocoder.graphs.num_launches > 0
    for replayed, second, launched in zip(graphs, again, eager, strict=True):
        near(second, replayed, 1e-3)
        near(replayed, launched, 1e-3)


@torch.inference_mode()
def test_half_precision_at_the_released_size() -> None:
    """Rows of the longest bucket, one of them padded, the golden rule's weights."""
    config = full_size_model().vocoder
    state = generated(vocoder_shapes(config))
    model = StepAudio2Vocoder(config, state, max_samples=0, device=CUDA)
    calls = CallConfig(frame_buckets=(112,), row_buckets=(4,))
    decode = kernel_decoder(model, calls, "float16", num_multiprocessors=132)
    frames = (112, 70, 112, 9)
    lengths = RowLengths(torch.tensor(frames, device=CUDA), 112)
    mel = torch.stack([mel_of(f"full.{row}", 112) for row in range(len(frames))]).to(CUDA)
    noise = torch.stack(
        [normal(f"full.noise.{row}", (112 * units.SAMPLES_PER_FRAME,)) for row in range(len(frames))]
    ).to(CUDA)
    source = model.network.source(model.network.f0(mel, lengths), lengths, noise)
    spectra = model.network.spectra(source, lengths)
    counts = [units.SAMPLES_PER_FRAME * count for count in frames]

    def own(samples: torch.Tensor) -> list[torch.Tensor]:
        return [samples[row, :count].cpu() for row, count in enumerate(counts)]

    exact, half = own(model.network.decode(mel, spectra, lengths)), own(decode(mel, spectra, lengths))
    decode(mel.flip(0), spectra.flip(0), lengths)
    again = own(decode(mel, spectra, lengths))
    assert all(torch.equal(*each) for each in zip(again, half, strict=True)), "whatever ran before"
    relative, spectral = errors(half, exact)
    print(f"\nreleased size, float16: {relative:.2e} of the signal, log spectrum {spectral:.2e}")
    assert relative < MOST["float16"][0]
    assert spectral < MOST["float16"][1]


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("family") / "model")


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_engine_speaks_alone_as_in_a_crowd(model_dir: Path, precision: str) -> None:
    kv_dtype, vocoder = {"float32": ("float32", "float32"), "bfloat16": ("float8", "float16")}[precision]
    config = replace(BASE, model_dir=model_dir, precision=precision, kv_dtype=kv_dtype, vocoder_precision=vocoder)
    model = load_model_config(model_dir)
    stages = load_stages(config, model, load_voices(model_dir, model))
    assert flow_of(stages).graphs.num_graphs > 0
    num_free = (stages.flow.num_free_blocks, stages.flow.num_free_batches, stages.llm.num_free_slots)
    alone = HandDrivenEngine(config, stages).speak("u", [TEXT])
    engine = HandDrivenEngine(config, stages)
    among = crowd(engine, seed=1)
    assert isinstance(alone.end, Done)
    assert isinstance(among.end, Done)
    assert among.end.audio_ms == alone.end.audio_ms
    distance = spectral_distance(pcm(alone), pcm(among))
    print(f"\n{precision}, alone against a crowd of {len(OTHERS)} texts: log spectrum {distance:.4f}")
    assert distance < 0.15
    engine.run()
    assert (stages.flow.num_free_blocks, stages.flow.num_free_batches, stages.llm.num_free_slots) == num_free
    if precision == "float32":
        cpu = HandDrivenEngine(config_for(model_dir, first_block_tokens=BASE.first_block_tokens), stages_of(model_dir))
        said = cpu.speak("u", [TEXT])
        assert isinstance(said.end, Done)
        assert said.end.audio_ms == alone.end.audio_ms
        assert spectral_distance(pcm(alone), pcm(said)) < 0.15
