"""Which tiles of the second family's Euler step are fastest on this GPU: attention's, and products' beside cuBLAS.

Its outcome are stepaudio2/flow/cuda/fused_attention.attend_tile, and tiles and limits in step. A product's tiles are
judged behind one another, without the norms between them.

python -m voicegate.bench.kernels.tune_stepaudio2 [--only products]
"""

import argparse
from dataclasses import astuple
from functools import partial
from typing import Final

import torch
from triton.runtime.errors import OutOfResources

from voicegate.bench.kernels.stepaudio2_model import StepAudio2Fixture, full_size_flow
from voicegate.bench.kernels.timing import DEVICE, captured_us
from voicegate.bench.kernels.tune_flow import LINEAR_TILES, SPLIT_TILES, tune_product
from voicegate.engine.token2wav.flow.cuda.fused_linear import LinearTile
from voicegate.engine.token2wav.stepaudio2.flow.chunk_buffers import ChunkBuffers, ChunkShape
from voicegate.engine.token2wav.stepaudio2.flow.cuda import fused_attention
from voicegate.engine.token2wav.stepaudio2.flow.cuda.fused_attention import AttendTile
from voicegate.engine.token2wav.stepaudio2.flow.cuda.tensors import StepTensors, step_tensors
from voicegate.engine.token2wav.stepaudio2.flow.memory import CFG_HALVES

KNOWN: Final = (512, 1_024)  # frames
# Rows and tokens of their chunks: first ones alone and together, later ones, as the buckets have them.
BATCHES: Final = ((1, 12), (1, 27), (1, 52), (2, 52), (4, 12), (4, 52), (8, 52), (32, 12), (32, 52))
ATTEND_TILES: Final = [
    AttendTile(frames, keys, splits, num_stages, num_warps, max_registers)
    for frames, keys, num_stages, num_warps, max_registers in (
        (16, 64, 3, 4, None),
        (32, 64, 3, 4, None),
        (64, 64, 2, 4, None),
        (64, 64, 3, 4, None),
        (64, 64, 3, 4, 168),
        (64, 64, 3, 4, 128),
        (64, 32, 4, 4, None),
        (64, 128, 2, 4, None),
        (128, 64, 3, 8, None),
    )
    for splits in (1, 2, 4, 8)
]
# Narrower ones too: an update has 512 outputs, which are 8 programs of 64 for each 64 lines.
PRODUCT_TILES: Final = [
    *LINEAR_TILES,
    LinearTile(64, 32, 64, 6, 4),
    LinearTile(64, 32, 128, 4, 4),
    *SPLIT_TILES,
    LinearTile(64, 32, 64, 4, 4, num_parts=4),
    LinearTile(64, 32, 128, 4, 4, num_parts=2),
]
# Both halves of a row of 24, 54 and 104 frames, and of several.
LINES: Final = (48, 96, 108, 192, 208, 416, 832)


def tune_attention(fixture: StepAudio2Fixture, tensors: StepTensors) -> None:
    for known in KNOWN:
        print(f"attend, {known} frames: us by tile (frames, keys, splits, stages, warps, registers), rows x tokens")
        print(" " * 34 + "".join(f"{f'{rows} x {tokens}':>9}" for rows, tokens in BATCHES))
        for tile in ATTEND_TILES:
            times = [attend_us(fixture, tensors, tile, rows, tokens, known) for rows, tokens in BATCHES]
            print(f"  {astuple(tile)!s:32}" + "".join(f"{time:9.2f}" for time in times), flush=True)


def attend_us(
    fixture: StepAudio2Fixture, tensors: StepTensors, tile: AttendTile, num_rows: int, num_tokens: int, known: int
) -> float:
    """Of one layer, with its merge; each layer reads a context of its own."""
    shape = ChunkShape(num_rows, num_tokens, known)
    buffers = ChunkBuffers(fixture.model, fixture.memory, shape)
    buffers.fill(fixture.rows([known] * num_rows, [num_tokens] * num_rows))
    config = tensors.config
    width = 3 * config.num_heads * config.head_dim
    qkv = torch.randn(CFG_HALVES * num_rows * shape.num_frames, width, device=DEVICE).bfloat16()

    def work() -> None:
        for layer in range(config.depth):
            fused_attention.attend(tensors, buffers, qkv, layer, tile=tile)

    try:
        return captured_us(work) / config.depth
    except OutOfResources:
        return float("nan")


def tune_products(tensors: StepTensors) -> None:
    layers = tensors.layers
    tune = partial(tune_product, lines=LINES, tiles=PRODUCT_TILES)
    tune("qkv", [layer.qkv for layer in layers])
    tune("mlp in, gelu", [layer.mlp_in for layer in layers], has_gelu=True)
    tune("attention out", [layer.attn_out for layer in layers], has_parts=True)
    tune("convolution", [layer.conv_in for layer in layers], has_parts=True)
    tune("mlp out", [layer.mlp_out for layer in layers], has_parts=True)


TUNED: Final = ("products", "attention")


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m voicegate.bench.kernels.tune_stepaudio2",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", nargs="+", choices=TUNED, default=TUNED, help="(default: both)")
    return parser


@torch.inference_mode()
def main() -> None:
    chosen = parser().parse_args().only
    fixture = StepAudio2Fixture(
        full_size_flow(),
        num_rows=max(rows for rows, _ in BATCHES),
        num_known=KNOWN[-1],
        device=DEVICE,
        dtype=torch.bfloat16,
        kv_dtype=torch.float8_e4m3fn,
    )
    tensors = step_tensors(fixture.model, fixture.memory)
    if "products" in chosen:
        tune_products(tensors)
    if "attention" in chosen:
        tune_attention(fixture, tensors)


if __name__ == "__main__":
    main()
