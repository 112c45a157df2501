"""Which tile is fastest for each weight of the speech LLM, and whether all tiles give the same bits. Needs a GPU.

python -m voicegate.bench.kernels.tune_llm [--kinds qkv out gate_up down head attend draw] [--lines 1 16 64 256 1024]

The tiles of engine/llm/cuda/config.py come from here. A tile other than the first of its kind is marked `differs`
where its results are not bit for bit the first's: it then sums in another order.
"""

import argparse
import itertools
import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

import torch

from voicegate.bench.kernels.llm_model import FULL_SIZE, fill_readings, fill_work, make_body, random_state_dict, small
from voicegate.bench.kernels.timing import back_to_back_us
from voicegate.engine.llm.cuda.body import DecoderBody
from voicegate.engine.llm.cuda.config import AttentionTile, Tile, TileTable
from voicegate.engine.llm.cuda.weights import DecoderWeights

_PRODUCTS = ("qkv", "out", "gate_up", "down", "head")
_READ_LINES = 130  # of a sentence that is read anew with a 5 s prompt
_NUM_LAYERS = 24  # different weights one after the other: none is left in the cache by the call before


def tiles(kind: str) -> list[Tile]:
    """Candidates of (block_m, block_n, block_k, stages, warps, splits); the first one is the reference."""
    common = [
        (64, 32, 128, 5, 4, 1),
        (64, 64, 64, 5, 4, 1),
        (64, 128, 64, 4, 4, 1),
        (128, 128, 64, 4, 8, 1),
        (16, 32, 128, 6, 4, 1),
        (16, 64, 128, 5, 4, 1),
        (16, 128, 128, 4, 4, 1),
        (32, 32, 128, 6, 4, 1),
        (32, 64, 128, 4, 4, 1),
        (64, 64, 128, 3, 4, 1),
        (64, 128, 64, 3, 4, 1),
        (128, 64, 64, 4, 4, 1),
        (128, 64, 64, 5, 8, 1),
    ]
    split = [
        (64, 32, 64, 8, 4, 4),
        (64, 64, 64, 5, 4, 4),
        (64, 128, 64, 4, 4, 4),
        (128, 64, 64, 4, 4, 4),
        (128, 128, 64, 4, 8, 4),
        (16, 32, 64, 8, 4, 4),
        (16, 32, 64, 6, 2, 4),
        (16, 64, 64, 8, 4, 4),
        (16, 64, 64, 6, 4, 4),
        (16, 32, 64, 12, 4, 4),
        (32, 32, 64, 10, 4, 4),
        (32, 64, 64, 6, 4, 4),
        (64, 64, 64, 4, 4, 4),
        (64, 64, 128, 3, 4, 4),
        (64, 128, 64, 3, 4, 4),
        (128, 64, 64, 3, 4, 4),
        (128, 64, 64, 5, 8, 4),
        (128, 128, 64, 3, 8, 4),
    ]
    more = {
        "qkv": [*common, (64, 16, 128, 6, 4, 1), (16, 16, 128, 7, 2, 1), (64, 64, 64, 4, 8, 1)],
        "out": [*common, (16, 32, 128, 7, 2, 1)],
        "gate_up": [
            *common,
            (16, 128, 64, 6, 4, 1),
            (16, 64, 128, 4, 2, 1),
            (16, 128, 128, 3, 8, 1),
            (16, 128, 128, 2, 4, 1),
            (16, 128, 64, 3, 4, 1),
            (32, 128, 64, 5, 4, 1),
            (64, 128, 128, 3, 4, 1),
            (64, 256, 64, 3, 8, 1),
            (64, 256, 64, 3, 4, 1),
            (128, 128, 64, 3, 4, 1),
            (128, 128, 64, 2, 8, 1),
            (128, 256, 64, 3, 8, 1),
            (128, 128, 64, 3, 8, 1),
        ],
        "down": split,
        "head": [*common, (64, 64, 64, 3, 4, 1)],
    }
    return [Tile(*numbers) for numbers in more[kind]]


def body_for(kind: str, tile: Tile, num_layers: int, weights: DecoderWeights) -> DecoderBody:
    table = replace(TileTable(), ahead=None, **{kind: ((1, tile),)})  # type: ignore[arg-type]
    return make_body(small(FULL_SIZE, num_layers), weights, table)


def launch(body: DecoderBody, kind: str, layer: int, num_lines: int) -> None:
    match kind:
        case "qkv":
            body.project_qkv(layer, num_lines)
        case "out":
            body.project_out(layer, num_lines)
        case "gate_up":
            body.project_gate_up(layer, num_lines)
        case "down":
            body.project_down(layer, num_lines)
        case "head":
            body.score(min(num_lines, 512))
        case "attend":
            body.attend(layer, num_lines)
        case _:
            body.draw(min(num_lines, 512))


def make_weights(num_layers: int) -> DecoderWeights:
    config = small(FULL_SIZE, num_layers)
    return DecoderWeights(config, random_state_dict(config), device=torch.device("cuda"), dtype=torch.bfloat16)


def compile_some(work: Sequence[tuple[str, Tile]]) -> list[tuple[str, Tile]]:
    """In a process of its own: leaves the kernels in Triton's cache on disk; returns those that compiled."""
    weights = make_weights(1)
    compiled = []
    for kind, tile in work:
        try:
            launch(body_for(kind, tile, 1, weights), kind, 0, 1)
            torch.cuda.synchronize()
            compiled.append((kind, tile))
        except Exception as error:  # noqa: BLE001 - a tile may need more shared memory than there is
            print("left out:", kind, tile, str(error)[:80], flush=True)
    return compiled


def results(body: DecoderBody, kind: str, num_lines: int) -> list[torch.Tensor]:
    """What the product leaves behind, from the same random input whatever the tile."""
    generator = torch.Generator("cuda").manual_seed(1)
    for buffer in (body.residual, *body.activations):
        buffer.copy_(torch.randn(buffer.shape, device="cuda", generator=generator))
    for squares in body.squares:
        squares.zero_()
        squares[0] = FULL_SIZE.hidden_size
    fill_work(body, num_lines, min(num_lines, 512), position=7)
    launch(body, kind, 0, num_lines)
    torch.cuda.synchronize()
    left = [
        *(squares.t() for squares in body.squares),
        body.residual,
        *body.activations,
        body.cache[0, :, :, :, 7:9],
        body.scores[: min(num_lines, 512)],
    ]
    return [tensor[:num_lines].clone() if index < 7 else tensor.clone() for index, tensor in enumerate(left)]


def capture(body: DecoderBody, kind: str, num_lines: int) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for layer in range(_NUM_LAYERS):
            launch(body, kind, layer, num_lines)
    return graph


def tune(kind: str, candidates: Sequence[Tile], line_counts: Sequence[int], weights: DecoderWeights) -> None:
    print(f"{kind:8} {'tile (m, n, k, stages, warps, splits)':40} us at lines {list(line_counts)}", flush=True)
    references: dict[int, list[torch.Tensor]] = {}
    for tile in candidates:
        body = body_for(kind, tile, _NUM_LAYERS, weights)
        cells = []
        for num_lines in line_counts:
            found = results(body, kind, num_lines)
            expected = references.setdefault(num_lines, found)
            same = all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
            cells.append(f"{back_to_back_us(capture(body, kind, num_lines)) / _NUM_LAYERS:7.2f}{' ' if same else '!'}")
        alone, batched = results(body, kind, 1), results(body, kind, max(line_counts))
        is_invariant = all(torch.equal(one[:1], many[:1]) for one, many in zip(alone[:7], batched[:7], strict=True))
        numbers = (tile.block_m, tile.block_n, tile.block_k, tile.num_stages, tile.num_warps, tile.num_splits)
        print(f"{kind:8} {numbers!s:40} {' '.join(cells)} {'' if is_invariant else 'NOT INVARIANT'}", flush=True)


def tune_attention(line_counts: Sequence[int], weights: DecoderWeights, *, context: int) -> None:
    """No bits to compare here: the keys of a tile are part of the order of summation."""
    config = small(FULL_SIZE, _NUM_LAYERS)

    def try_out(attention: AttentionTile, fill: Callable[[DecoderBody, int], None]) -> str:
        body = make_body(config, weights, replace(TileTable(), attention=attention), max_positions=1024)
        cells = []
        for num_lines in line_counts:
            fill(body, num_lines)
            body.attend(0, num_lines)
            cells.append(f"{back_to_back_us(capture(body, 'attend', num_lines)) / _NUM_LAYERS:7.2f}")
        return " ".join(cells)

    def decodes(body: DecoderBody, num_lines: int) -> None:
        fill_work(body, num_lines, 1, position=context)

    def readings(body: DecoderBody, num_lines: int) -> None:
        fill_readings(body, num_lines, num_readings=-(-num_lines // _READ_LINES), position=context - _READ_LINES)

    print(f"decodes at context {context}, (keys, stages, warps): us at lines {list(line_counts)}", flush=True)
    for keys, stages, warps in itertools.product((64, 128, 256), (2, 3, 4), (4, 8)):
        tile = AttentionTile(decode_keys=keys, num_stages=stages, num_warps=warps)
        print(f"attend   {(keys, stages, warps)!s:40} {try_out(tile, decodes)}", flush=True)
    print(f"readings of up to {_READ_LINES} lines, to context {context}, (keys, stages, warps, rows)", flush=True)
    for keys, stages, warps, rows in itertools.product((32, 64, 128), (2, 3), (4, 8), (32, 64, 128)):
        tile = AttentionTile(block_keys=keys, num_stages=stages, num_warps=warps, num_rows=rows)
        print(f"attend   {(keys, stages, warps, rows)!s:40} {try_out(tile, readings)}", flush=True)


def tune_draw(line_counts: Sequence[int], weights: DecoderWeights) -> None:
    for num_warps in (4, 8, 16):
        body = make_body(small(FULL_SIZE, _NUM_LAYERS), weights, replace(TileTable(), num_draw_warps=num_warps))
        cells = []
        for num_lines in line_counts:
            fill_work(body, num_lines, num_lines, position=1)
            body.scores.normal_().mul_(3)
            body.draw(num_lines)
            cells.append(f"{back_to_back_us(capture(body, 'draw', num_lines)) / _NUM_LAYERS:7.2f}")
        print(f"draw     {num_warps!s:40} {' '.join(cells)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", default=[*_PRODUCTS, "attend", "draw"])
    parser.add_argument("--lines", nargs="+", type=int, default=[1, 16, 64, 256, 1024])
    parser.add_argument("--processes", type=int, default=12, help="that compile")
    options = parser.parse_args()
    products = [kind for kind in _PRODUCTS if kind in options.kinds]
    work = [(kind, tile) for kind in products for tile in tiles(kind)]
    shares = [work[index :: options.processes] for index in range(options.processes)]
    with ProcessPoolExecutor(options.processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        compiled = {item for share in pool.map(compile_some, shares) for item in share}
    weights = make_weights(_NUM_LAYERS)
    if "attend" in options.kinds:
        tune_attention(options.lines, weights, context=300)
    if "draw" in options.kinds:
        tune_draw([1, 64, 256], weights)
    for kind in products:
        tune(kind, [tile for tile in tiles(kind) if (kind, tile) in compiled], options.lines, weights)


if __name__ == "__main__":
    main()
