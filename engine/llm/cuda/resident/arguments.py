"""What the host gives decode_step.cu: arguments, macros, and the memory that is the step's own. No CUDA here."""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch

from voicegate.engine.llm.cuda.resident.plan import DECODE_KEYS, GRANULE, MAX_KEYS, NUM_SPLITS, ResidentPlan
from voicegate.engine.llm.cuda.weights import DecoderWeights
from voicegate.engine.model.config import LlmConfig

KERNEL: Final = Path(__file__).with_name("kernel") / "decode_step.cu"

_BOX_KEYS: Final = 64  # attention.cuh's

# Of a matrix: so many of its rows at a time, and one of so many splits of its columns -> CUtensorMap's words.
MakeMap = Callable[[torch.Tensor, int, int], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Buffers:
    """DecoderBody's; of each the first line is used."""

    line: torch.Tensor
    cache: torch.Tensor
    x: torch.Tensor
    squares: torch.Tensor
    residual: torch.Tensor
    scores: torch.Tensor


class Arguments(ctypes.Structure):
    """model.cuh's."""

    _fields_ = (
        ("maps", ctypes.c_uint64 * 16 * 6),
        *((name, ctypes.c_uint64) for name in ("qkv_bias", "head_bias", "plans", "fetches", "line", "rotary", "cache")),
        *((name, ctypes.c_uint64) for name in ("x", "squares", "residual", "scores", "exchange", "epoch")),
        *((name, ctypes.c_uint64) for name in ("layer_stride", "part_stride", "slot_stride")),
        ("epsilon", ctypes.c_float),
        ("unused", ctypes.c_uint32 * 15),  # to a multiple of 64 bytes, as tensor maps are aligned: all of it is copied
    )


class KernelInputs:
    """Arguments and macros, with what programs exchange, what each does, and all else that has its address there."""

    def __init__(
        self,
        config: LlmConfig,
        weights: DecoderWeights,
        plan: ResidentPlan,
        buffers: Buffers,
        make_map: MakeMap,
        *,
        scale: float,
    ) -> None:
        """`scale` of scores, to the base 2."""
        device, cache = buffers.cache.device, buffers.cache
        num_words = 2 * (
            2 * (config.hidden_size // 2 + config.hidden_size // GRANULE)
            + config.hidden_size
            + config.num_kv_heads * config.head_dim
            + config.intermediate_size // 2
        )
        self._exchange = torch.zeros(num_words, dtype=torch.int64, device=device)
        self._epoch = torch.ones(1, dtype=torch.int32, device=device)
        self._plans = torch.from_numpy(plan.warps).to(device)
        self._fetches = torch.from_numpy(plan.fetches).to(device)
        self._weights, self._buffers = weights, buffers
        stacks, bias = weights.stacks, weights.head_bias
        self.arguments = Arguments(
            qkv_bias=stacks.qkv_bias.data_ptr(),
            head_bias=0 if bias is None else bias.data_ptr(),
            plans=self._plans.data_ptr(),
            fetches=self._fetches.data_ptr(),
            line=buffers.line.data_ptr(),
            rotary=weights.rotary.data_ptr(),
            cache=cache.data_ptr(),
            x=buffers.x.data_ptr(),
            squares=buffers.squares.data_ptr(),
            residual=buffers.residual.data_ptr(),
            scores=buffers.scores.data_ptr(),
            exchange=self._exchange.data_ptr(),
            epoch=self._epoch.data_ptr(),
            layer_stride=cache.stride(0),
            part_stride=cache.stride(1),
            slot_stride=cache.stride(2),
            epsilon=config.rms_norm_eps,
        )
        maps = [make_map(weight.flatten(0, -2), GRANULE, 1) for weight in (stacks.qkv, stacks.out, stacks.gate_up)]
        maps.append(make_map(stacks.down.flatten(0, -2), GRANULE, NUM_SPLITS))
        maps += [make_map(weights.head, GRANULE, 1), make_map(cache.view(-1, config.head_dim), _BOX_KEYS, 1)]
        for index, words in enumerate(maps):
            self.arguments.maps[index] = (ctypes.c_uint64 * 16)(*words)
        self.macros: dict[str, int | str] = {
            "HIDDEN": config.hidden_size,
            "INNER": config.intermediate_size,
            "LAYERS": config.num_layers,
            "QKV_ROWS": stacks.qkv.shape[1],  # as they are padded
            "OUT_ROWS": stacks.out.shape[1],
            "GATE_UP_ROWS": stacks.gate_up.shape[1],
            "SPLITS": NUM_SPLITS,
            "KV_HEADS": config.num_kv_heads,
            "HEAD_DIM": config.head_dim,
            "DECODE_KEYS": DECODE_KEYS,
            "MAX_KEYS": MAX_KEYS,
            "MAX_POSITIONS": cache.shape[4],
            "SQUARES_STRIDE": buffers.squares.stride(0),
            "SCALE": f"{scale!r}f",
            "HEAD_PROGRAM": plan.head_program,
        }
