"""Real Triton where there is no GPU: kernels are compiled with a launch's arguments, and not launched.

Triton's interpreter knows neither the compiler's limits nor the device's. Run in a process of its own, since Triton
decides at its first import which of the two it is: `python -m tests.support.kernel_compiler hopper`.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from types import SimpleNamespace
from typing import Any, Final
from unittest import mock

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from tests.support.stepaudio2_full_size import StepAudio2Fixture, full_size_flow, full_size_model, random_weights
from voicegate.bench.kernels.floors import FULL
from voicegate.engine import units
from voicegate.engine.backends.tensorrt.flow.gather_kernels import gather_context
from voicegate.engine.families.stepaudio2.flow.chunk_buffers import ChunkBuffers, ChunkShape
from voicegate.engine.families.stepaudio2.flow.cuda import tensors
from voicegate.engine.families.stepaudio2.flow.cuda.step import FusedStep
from voicegate.engine.families.stepaudio2.vocoder.cuda.kernel_decoder import KernelDecoder
from voicegate.engine.families.stepaudio2.vocoder.network import RowLengths
from voicegate.engine.families.stepaudio2.vocoder.weights import load_vocoder_weights, vocoder_shapes
from voicegate.engine.flow.block_pool import BlockPool
from voicegate.engine.flow.cuda import fused_linear
from voicegate.engine.flow.cuda.buffers import BatchBuffers
from voicegate.engine.flow.cuda.config import FlowCudaConfig
from voicegate.engine.flow.cuda.estimator import FixedShapeEstimator
from voicegate.engine.flow.cuda.ops import STEP_OPS
from voicegate.engine.flow.cuda.tensors import flow_tensors
from voicegate.engine.flow.model import FlowModel
from voicegate.engine.flow.weights import flow_shapes
from voicegate.engine.llm.cuda.body import DecoderBody
from voicegate.engine.llm.cuda.config import LINE_BUCKETS, default_tiles
from voicegate.engine.llm.cuda.weights import DecoderWeights
from voicegate.engine.llm.torch.model import llm_shapes
from voicegate.engine.model.config import SamplingConfig, VocoderConfig
from voicegate.engine.vocoder.cuda.config import VocoderCudaConfig

CPU: Final = torch.device("cpu")
KNOWN: Final = 512
# A first chunk alone, whose contexts are split and whose products are Triton's; and four later ones.
SHAPES: Final = (ChunkShape(1, 12, KNOWN), ChunkShape(1, 52, KNOWN), ChunkShape(4, 52, KNOWN))
# Sizes of the first family: a short block, one, two, four, and so many that no context is split.
BLOCK_FRAMES: Final = (32, 50, 100, 200, 600)


@dataclass(frozen=True, slots=True)
class Gpu:
    capability: int
    shared_bytes: int  # that a program may have


GPUS: Final = {"hopper": Gpu(90, 227 * 1024), "ada": Gpu(89, 99 * 1024)}


@contextmanager
def compiled_only(gpu: Gpu) -> Iterator[dict[str, int]]:
    """-> bytes of shared memory by kernel, the most that one of them takes."""
    shared: dict[str, int] = {}
    run = JITFunction.run

    def compile_(kernel: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        compiled = run(kernel, *args, grid=grid, warmup=True, **options)
        shared[kernel.__name__] = max(shared.get(kernel.__name__, 0), compiled.metadata.shared)
        return compiled

    target = GPUTarget("cuda", gpu.capability, 32)
    driver.set_active(
        SimpleNamespace(get_current_target=lambda: target, get_current_device=lambda: 0, get_current_stream=lambda _: 0)
    )
    with (
        mock.patch.object(JITFunction, "run", compile_),
        mock.patch.object(tensors, "can_overlap", return_value=gpu.capability >= 90),
        mock.patch.object(fused_linear, "shared_bytes", return_value=gpu.shared_bytes),
        mock.patch.object(fused_linear, "is_hopper", return_value=gpu.capability == 90),
    ):
        yield shared


def compile_steps(dtype: torch.dtype, kv_dtype: torch.dtype) -> None:
    """One layer's kernels of the released size. What torch computes between them is of memory that nobody wrote."""
    config = full_size_flow()
    config = replace(config, estimator=replace(config.estimator, depth=1), num_euler_steps=1)
    most = max(shape.num_rows for shape in SHAPES)
    fixture = StepAudio2Fixture(config, num_rows=most, num_known=KNOWN, device=CPU, dtype=dtype, kv_dtype=kv_dtype)
    step = FusedStep(fixture.model, fixture.memory)
    for shape in SHAPES:
        buffers = ChunkBuffers(fixture.model, fixture.memory, shape)
        buffers.fill(fixture.rows([KNOWN] * shape.num_rows, [shape.num_tokens] * shape.num_rows))
        step.advance(buffers)


def compile_blocks(dtype: torch.dtype, kv_dtype: torch.dtype, *, is_pdl: bool) -> None:
    """Compiles the first family's: an Euler step of one block, whose contexts are split, of two, and of many."""
    config = FULL.cosyvoice3_flow
    config = replace(config, estimator=replace(config.estimator, depth=1), num_euler_steps=1)
    state = random_weights(flow_shapes(config), CPU)
    model = FlowModel(config, state, device=CPU, dtype=dtype, noise=torch.zeros(units.NUM_MELS, 500))
    pool = BlockPool(config.estimator, num_steps=1, num_blocks=2, device=CPU, dtype=dtype, kv_dtype=kv_dtype)
    estimator = FixedShapeEstimator(model, flow_tensors(model, pool, is_pdl=is_pdl), STEP_OPS)
    sizes = FlowCudaConfig(frame_buckets=BLOCK_FRAMES).sizes
    buffers = BatchBuffers(model, pool, max_rows=sizes[-1].num_rows, max_lines=sizes[-1].num_frames)
    for size in sizes:
        estimator.advance(buffers.view(size.num_rows, size.num_frames))


def compile_context_copy(low: torch.dtype, kv_dtype: torch.dtype) -> None:
    """Compiles the copy of a batch's context for TensorRT's engines of the first family's flow, at the released
    size."""
    batch: Any = SimpleNamespace(
        num_rows=2, table_column=50, step=torch.zeros(1, dtype=torch.int64), rows=torch.zeros(2, 400, dtype=torch.int64)
    )
    pool = torch.empty(1, 10, 22, 2, 32, 50, 64, dtype=kv_dtype)
    gather_context(pool, batch, torch.empty(22, 2, 2, 2, 16, 1000, 64, dtype=low))


def compile_vocoder() -> None:
    config = full_size_model().vocoder
    weights = load_vocoder_weights(config, random_weights(vocoder_shapes(config), CPU), device=CPU)
    compile_decoder(config, weights)


def compile_decoder(config: VocoderConfig, weights: Mapping[str, torch.Tensor]) -> None:
    """A first chunk alone, two later ones; in half precision, as it is served."""
    cuda = VocoderCudaConfig(precision="float16", batch_buckets=(1, 2), frame_buckets=(32, 112))
    decode = KernelDecoder(config, weights, cuda, device=CPU)
    for num_rows, num_frames in ((1, 32), (2, 112)):
        lengths = RowLengths(torch.full((num_rows,), num_frames), num_frames)
        mel = torch.zeros(num_rows, units.NUM_MELS, num_frames)
        spectra = torch.zeros(num_rows, config.stft_size + 2, lengths.mask(120, extra=1).shape[2])
        decode(mel, spectra, lengths)


def compile_llm(dtype: torch.dtype, gpu: Gpu) -> None:
    """One layer's kernels of the released size, for every tile that `gpu` has; a draw."""
    config = replace(FULL.llm, num_layers=1)
    state = {name: torch.zeros(shape, dtype=dtype) for name, shape in llm_shapes(config).items()}
    tiles = default_tiles(is_float32=dtype == torch.float32, shared_memory_bytes=gpu.shared_bytes)
    body = DecoderBody(
        config,
        SamplingConfig(),
        DecoderWeights(config, state, device=CPU, dtype=dtype),
        num_slots=1,
        max_positions=64,
        max_lines=LINE_BUCKETS[-1],
        max_samples=1,
        tiles=tiles,
        is_pdl=gpu.capability >= 90,
    )
    for num_lines in LINE_BUCKETS:
        body.run(num_lines)
    body.sample(1)


def main() -> None:
    gpu = GPUS[sys.argv[1]]
    with torch.inference_mode(), compiled_only(gpu) as shared:
        for dtypes in product((torch.bfloat16,), (torch.bfloat16, torch.float8_e4m3fn)):
            compile_steps(*dtypes)
            compile_blocks(*dtypes, is_pdl=gpu.capability >= 90)
            compile_context_copy(*dtypes)
        compile_blocks(torch.float32, torch.float32, is_pdl=gpu.capability >= 90)
        compile_steps(torch.float32, torch.float32)
        compile_context_copy(torch.float32, torch.float32)
        compile_vocoder()
        for dtype in (torch.bfloat16, torch.float32):
            compile_llm(dtype, gpu)
    for name, num_bytes in shared.items():
        sys.stdout.write(f"{name}: {num_bytes} bytes of shared memory\n")
        assert num_bytes <= gpu.shared_bytes, name


if __name__ == "__main__":
    main()
