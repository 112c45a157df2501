"""The decoder's network on static buffers: lines in, hidden states, scores and tokens out, by our Triton kernels.

Owns weights, cache and buffers; knows nothing of sequences. Every call has a fixed shape and reads nothing back, so
that it can be captured in a CUDA graph. The order of kernels of one layer: project_qkv, attend, project_residual,
project_gate_up, project_residual.
"""

import math
from types import ModuleType

import numpy as np
import structlog
import torch
import triton

from voicegate.engine.llm.cuda import ahead_kernels, attention_kernels, linear_kernels
from voicegate.engine.llm.cuda.config import WEIGHTS, AheadTile, AheadTiles, Tile, TileTable, tile_for
from voicegate.engine.llm.cuda.draws import make_draws
from voicegate.engine.llm.cuda.packing import WorkLayout
from voicegate.engine.llm.cuda.weights import DecoderWeights
from voicegate.engine.model.config import LlmConfig, Sampling

log = structlog.get_logger(__name__)

_LEAST_ROWS = 16  # of a product that tensor cores take
_LINES_PER_TILE = 128  # of activations at most; buffers are that much longer than their lines


class DecoderBody:
    """A step is `run`, then `sample`, on the current CUDA stream."""

    def __init__(
        self,
        config: LlmConfig,
        sampling: Sampling,
        weights: DecoderWeights,
        *,
        num_slots: int,
        max_positions: int,
        max_lines: int,
        max_samples: int,
        tiles: TileTable,
        is_pdl: bool = False,
    ) -> None:
        """One slot more than `num_slots` is made, for the lines that fill a bucket.

        `is_pdl`: kernels begin while the last one runs. Then a line that feeds its slot's last token must be the only
        one of its slot in a `run`.
        """
        device, dtype = weights.table.device, weights.table.dtype
        self.config = config
        self.layout = WorkLayout(max_lines=max_lines, max_samples=max_samples)
        self.padding_slot = num_slots
        self._tiles = tiles
        self._is_pdl = is_pdl
        self._ahead = tiles.ahead if is_pdl and _can_be_ahead(tiles.ahead, config, weights.table.dtype) else None
        self._max_positions = max_positions
        self._scale = math.log2(math.e) / math.sqrt(config.head_dim)  # of scores, to the base 2
        self._qkv_width = (config.num_heads + 2 * config.num_kv_heads) * config.head_dim
        self._weights = weights

        def buffer(*shape: int, dtype: torch.dtype = dtype) -> torch.Tensor:
            return torch.zeros(shape, device=device, dtype=dtype)

        lines = max_lines + _LINES_PER_TILE
        hidden, query_width = config.hidden_size, config.num_heads * config.head_dim
        self.cache = buffer(
            config.num_layers, 2, num_slots + 1, config.num_kv_heads, max_positions, config.head_dim
        )  # keys are stored rotated
        self.work = buffer(self.layout.num_words, dtype=torch.int32)
        self._line_words = self.work[self.layout.origin :]
        self.last_token = buffer(num_slots + 1, dtype=torch.int32)
        self.tokens = buffer(max_samples, dtype=torch.int32)
        self.draws = make_draws(
            sampling,
            config,
            num_slots=num_slots + 1,
            max_samples=max_samples,
            device=device,
            num_warps=tiles.num_draw_warps,
        )
        self.residual = buffer(lines, hidden, dtype=torch.float32)
        widths = (hidden, query_width, query_width, config.intermediate_size)
        self.activations = [buffer(lines, width) for width in widths]
        self._x, self._query, self._attended, self._inner = self.activations
        self.scores = buffer(max_samples, _round_up(config.num_speech_rows, 16), dtype=torch.float32)
        self._num_parts = triton.cdiv(hidden, linear_kernels.SQUARES_COLUMNS.value)
        self.squares = [buffer(self._num_parts, lines, dtype=torch.float32) for _ in range(2)]
        self._squares_mlp, self._squares = self.squares
        self._partials, self._arrivals = self._split_scratch(tiles, max_lines, device)

    def _split_scratch(
        self, tiles: TileTable, max_lines: int, device: torch.device
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Room for the partial sums of the tiles that cut along k, and for counting them."""
        num_numbers, num_tiles = 1, 1
        for _, tile in (*tiles.out, *tiles.down):
            if tile.num_splits > 1:
                num_tiles = max(num_tiles, math.prod(_grid(tile, max_lines, self.config.hidden_size)))
                num_numbers = max(num_numbers, num_tiles * tile.num_splits * tile.block_m * tile.block_n)
        partials = torch.empty(num_numbers, device=device, dtype=torch.float32)
        return partials, torch.zeros(num_tiles, device=device, dtype=torch.int32)

    def fill_with_padding(self) -> None:
        """Records that touch no sequence's slot, everywhere."""
        words = np.zeros(self.layout.num_words, np.int32)
        self.layout.pad(words, padding_slot=self.padding_slot)
        self.work.copy_(torch.from_numpy(words))

    def run(self, num_lines: int) -> None:
        """Feed the first `num_lines` line records: their keys and values to the cache, their states to `residual`."""
        self._embed(num_lines)
        self.draws.note_fed(self._line_words, self.last_token, num_lines)
        for layer in range(self.config.num_layers):
            self.project_qkv(layer, num_lines)
            self.attend(layer, num_lines)
            self.project_out(layer, num_lines)
            self.project_gate_up(layer, num_lines)
            self.project_down(layer, num_lines)

    def sample(self, num_samples: int) -> None:
        """Draw for the first `num_samples` sample records, from the lines of the `run` before."""
        self.score(num_samples)
        self.draw(num_samples)

    def _embed(self, num_lines: int) -> None:
        config = self.config
        linear_kernels.embed[(num_lines,)](
            self._line_words,
            self._weights.table,
            self.last_token,
            self.residual,
            self._x,
            self._squares,
            FIRST_SPEECH_ROW=config.vocab_size,
            WIDTH=config.hidden_size,
            BLOCK=triton.next_power_of_2(config.hidden_size),
            SQUARES_STRIDE=self._squares.stride(0),
            NUM_PARTS=triton.next_power_of_2(self._num_parts),
            IS_PDL=self._overlaps(num_lines),
        )

    def project_qkv(self, layer: int, num_lines: int) -> None:
        config, weights = self.config, self._weights.layers[layer]
        tile = self._tile("qkv", num_lines)
        cache = self.cache[layer]
        self._kernels(tile).project_qkv[_grid(tile, num_lines, self._qkv_width)](
            self._x,
            self._squares,
            weights.qkv,
            weights.qkv_bias,
            self._line_words,
            self._weights.rotary,
            self._query,
            cache,
            num_lines,
            config.rms_norm_eps,
            cache.stride(1),
            cache.stride(0),
            WIDTH=config.hidden_size,
            NUM_HEADS=config.num_heads,
            NUM_KV_HEADS=config.num_kv_heads,
            HEAD_DIM=config.head_dim,
            MAX_POSITIONS=self._max_positions,
            SQUARES_STRIDE=self._squares.stride(0),
            **self._launch(tile, num_lines),
        )

    def attend(self, layer: int, num_lines: int) -> None:
        config, tile = self.config, self._tiles.attention
        cache = self.cache[layer]
        tile_heads = triton.next_power_of_2(config.num_heads // config.num_kv_heads)
        attention_kernels.attend[(num_lines, config.num_kv_heads)](
            self._query,
            self._line_words,
            cache,
            self._attended,
            cache.stride(1),
            cache.stride(0),
            SCALE=self._scale,
            NUM_HEADS=config.num_heads,
            NUM_KV_HEADS=config.num_kv_heads,
            HEAD_DIM=config.head_dim,
            MAX_POSITIONS=self._max_positions,
            BLOCK_HEADS=max(_LEAST_ROWS, tile_heads),
            TILE_HEADS=tile_heads,
            TILE_LINES=max(tile.num_rows // tile_heads, 1),
            BLOCK_DIM=max(16, triton.next_power_of_2(config.head_dim)),
            BLOCK_KEYS=tile.block_keys,
            DECODE_KEYS=tile.decode_keys,
            NUM_STAGES=tile.num_stages,
            DECODE_STAGES=tile.overlapped_stages if self._overlaps(num_lines) else tile.num_stages,
            IS_PDL=self._overlaps(num_lines),
            num_warps=tile.num_warps,
            launch_pdl=self._overlaps(num_lines),
        )

    def project_out(self, layer: int, num_lines: int) -> None:
        self._add(self._attended, self._weights.layers[layer].out, "out", self._squares_mlp, num_lines)

    def project_down(self, layer: int, num_lines: int) -> None:
        self._add(self._inner, self._weights.layers[layer].down, "down", self._squares, num_lines)

    def _add(self, x: torch.Tensor, weight: torch.Tensor, name: str, squares: torch.Tensor, num_lines: int) -> None:
        tile = self._tile(name, num_lines)
        self._kernels(tile).project_residual[(*_grid(tile, num_lines, self.config.hidden_size), tile.num_splits)](
            x,
            weight,
            self.residual,
            self._x,
            squares,
            self._partials,
            self._arrivals,
            num_lines,
            WIDTH=x.shape[1],
            OUT=self.config.hidden_size,
            SQUARES_STRIDE=squares.stride(0),
            NUM_SPLITS=tile.num_splits,
            **self._launch(tile, num_lines),
        )

    def project_gate_up(self, layer: int, num_lines: int) -> None:
        config, weight = self.config, self._weights.layers[layer].gate_up
        tile = self._tile("gate_up", num_lines)
        self._kernels(tile).project_gate_up[_grid(tile, num_lines, 2 * config.intermediate_size)](
            self._x,
            self._squares_mlp,
            weight,
            self._inner,
            num_lines,
            config.rms_norm_eps,
            WIDTH=config.hidden_size,
            INNER=config.intermediate_size,
            SQUARES_STRIDE=self._squares_mlp.stride(0),
            **self._launch(tile, num_lines),
        )

    def score(self, num_samples: int) -> None:
        """The head on the lines that the sample records name -> `scores`."""
        config, weight, bias = self.config, self._weights.head, self._weights.head_bias
        tile = self._tile("head", num_samples)
        self._kernels(tile).project_scores[_grid(tile, num_samples, config.num_speech_rows)](
            self._x,
            self._squares,
            weight,
            bias,
            self._line_words,
            self.scores,
            num_samples,
            config.rms_norm_eps,
            WIDTH=config.hidden_size,
            SCORES_STRIDE=self.scores.stride(0),
            SQUARES_STRIDE=self._squares.stride(0),
            **self._launch(tile, num_samples),
        )

    def draw(self, num_samples: int) -> None:
        """A token for each of the first `num_samples` of `scores` -> `tokens`, `last_token`, what `draws` remembers."""
        self.draws.draw(self.scores, self._line_words, self.last_token, self.tokens, num_samples)

    def _tile(self, name: str, num_lines: int) -> Tile | AheadTile:
        """The tile of a weight, by its name in the tables."""
        if self._ahead is not None:
            ahead: AheadTile = getattr(self._ahead, name)
            if num_lines <= ahead.block_m:
                return ahead
        return tile_for(getattr(self._tiles, name), num_lines)

    def _overlaps(self, num_lines: int) -> bool:
        return self._is_pdl and num_lines <= self._tiles.overlapped_lines

    def _kernels(self, tile: Tile | AheadTile) -> ModuleType:
        return linear_kernels if isinstance(tile, Tile) else ahead_kernels

    def _launch(self, tile: Tile | AheadTile, num_lines: int) -> dict[str, int | bool]:
        launch: dict[str, int | bool] = {
            "BLOCK_M": tile.block_m,
            "BLOCK_N": tile.block_n,
            "BLOCK_K": tile.block_k,
            "num_warps": tile.num_warps,
            "launch_pdl": self._overlaps(num_lines),
            "enable_fp_fusion": False,  # see linear_kernels
        }
        if isinstance(tile, Tile):
            launch |= {"NUM_STAGES": tile.num_stages, "IS_PDL": self._overlaps(num_lines)}
        return launch


def max_shared_memory_bytes(device: torch.device) -> int:
    """Shared memory that one program may take on this CUDA device."""
    properties = triton.runtime.driver.active.utils.get_device_properties(device.index or 0)
    return int(properties["max_shared_mem"])


def _can_be_ahead(tiles: AheadTiles | None, config: LlmConfig, dtype: torch.dtype) -> bool:
    """Whether each program's inputs are whole parts, of half precision."""
    query_width = config.num_heads * config.head_dim
    widths = {"out": query_width, "down": config.intermediate_size}
    shares = [
        (widths.get(name, config.hidden_size), tile)
        for name in WEIGHTS
        if (tile := getattr(tiles, name, None)) is not None
    ]
    return dtype.itemsize == 2 and all(width % (tile.num_splits * tile.block_k) == 0 for width, tile in shares)


def _grid(tile: Tile | AheadTile, num_lines: int, num_columns: int) -> tuple[int, int]:
    return triton.cdiv(num_lines, tile.block_m), triton.cdiv(num_columns, tile.block_n)


def _round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
