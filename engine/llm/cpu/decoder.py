"""Decode steps of a small speech LLM on a CPU, by one call of decode.c each.

It stands beside LlmModel and works on the same KvCache, so that a sequence may be fed by either at any position.
"""

import ctypes
import math
from collections.abc import Mapping, Sequence
from typing import Final

import structlog
import torch

from voicegate.engine.llm.cpu.library import NoLibrary, load_library
from voicegate.engine.llm.torch.kv_cache import KvCache
from voicegate.engine.llm.torch.model import BODY, HEAD, fused_qkv, head_bias, num_products, rotary_table
from voicegate.engine.model.config import LlmConfig

log = structlog.get_logger()

# Multiplications up to which a CPU has one thread, of a position for C and of a step for torch: a decode is some thirty
# small products, and before each of them the others would have to be woken (docs/adr/0018). Higher -> the other cores
# idle in larger steps.
ONE_THREADS_PRODUCTS: Final = 60_000_000
_WIDTHS_ARE_MULTIPLES_OF: Final = 16  # decode.c's longest vector


class _Model(ctypes.Structure):
    """`struct model` of decode.c."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("layers", "hidden", "inner", "heads", "kv_heads", "head_dim")),
        *((name, ctypes.c_int64) for name in ("speech_rows", "slots", "max_positions")),
        *((name, ctypes.c_void_p) for name in ("weights", "vectors", "rotary", "cache", "scratch")),
        *((name, ctypes.c_float) for name in ("eps", "score_scale")),
    )


def vectors_of_processor() -> str | None:
    """Which of decode.c's functions this processor runs; None: none of them.

    It asks torch, whose setting ATEN_CPU_CAPABILITY so counts here too. Where torch says AVX2 there is FMA and F16C.
    """
    capability = torch.backends.cpu.get_cpu_capability()
    if capability.startswith("AVX512"):
        return "avx512"
    return "avx2" if capability == "AVX2" else None


def can_decode() -> bool:
    """Whether decode.c runs here, for models that it fits; at a user's first call it is compiled."""
    if vectors_of_processor() is None:
        return False
    try:
        load_library()
    except NoLibrary:
        return False
    return True


def fits(config: LlmConfig, state_dict: Mapping[str, torch.Tensor]) -> bool:
    """Whether decode.c is written for such a model: small, stored as float16, of widths that fill its vectors."""
    widths = (config.hidden_size, config.intermediate_size, config.head_dim)
    return (
        num_products(config) <= ONE_THREADS_PRODUCTS
        and all(width % _WIDTHS_ARE_MULTIPLES_OF == 0 for width in widths)
        and all(state_dict[name].dtype == torch.float16 for name in _matrix_names(config))
    )


def decoder_of(config: LlmConfig, state_dict: Mapping[str, torch.Tensor], cache: KvCache) -> "CpuDecoder | None":
    """None: torch is to compute. It is logged where the user could change that."""
    vectors = vectors_of_processor()
    data = cache.data
    if vectors is None or data.device.type != "cpu" or data.dtype != torch.float32 or not fits(config, state_dict):
        return None
    try:
        return CpuDecoder(config, state_dict, cache, vectors=vectors)
    except NoLibrary as reason:
        log.info("llm_decodes_without_kernel", reason=str(reason))
        return None


class CpuDecoder:
    """Not thread-safe. Within a call other threads of Python run."""

    def __init__(
        self, config: LlmConfig, state_dict: Mapping[str, torch.Tensor], cache: KvCache, *, vectors: str
    ) -> None:
        """For a model that `fits`, with a state dict that LlmModel has taken, and its cache: float32, on the CPU.

        `vectors`: avx512, or avx2. Raises NoLibrary.
        """
        library = load_library()
        self._decode = getattr(library, f"decode_{vectors}")
        self._score = getattr(library, f"score_{vectors}")
        self._decode.argtypes = [ctypes.c_void_p, ctypes.c_int64, *[ctypes.c_void_p] * 4]
        self._score.argtypes = [ctypes.c_void_p, ctypes.c_int64, *[ctypes.c_void_p] * 2]
        self._decode.restype = self._score.restype = None
        num_slots, max_positions = cache.data.shape[2], cache.data.shape[4]
        self._num_slots, self._max_positions = num_slots, min(max_positions, config.max_positions)
        self._hidden_size, self._num_speech_rows = config.hidden_size, config.num_speech_rows
        # All that C points to is kept here.
        self._tensors = {
            "weights": _weights(config, state_dict),
            "vectors": _vectors(config, state_dict),
            "rotary": torch.view_as_real(rotary_table(config)).contiguous(),
            "cache": cache.data,
            "scratch": torch.empty(_scratch_floats(config, num_slots, max_positions)),
        }
        self._model = _Model(
            layers=config.num_layers,
            hidden=config.hidden_size,
            inner=config.intermediate_size,
            heads=config.num_heads,
            kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            speech_rows=config.num_speech_rows,
            slots=num_slots,
            max_positions=max_positions,
            eps=config.rms_norm_eps,
            score_scale=1 / math.sqrt(config.head_dim),
            **{name: tensor.data_ptr() for name, tensor in self._tensors.items()},
        )
        self._address = ctypes.addressof(self._model)

    def forward(self, embeddings: torch.Tensor, slots: Sequence[int], positions: Sequence[int]) -> torch.Tensor:
        """Feed one position to each of some slots, as LlmModel.forward does.

        `embeddings` [N, hidden] float32; `slots` [N], all different; `positions` [N], each the number of positions
        that its slot holds. Returns [N, hidden] float32, behind the last norm. A row does not depend on the others.
        Raises ValueError for what would be outside of the cache.
        """
        num_rows = len(slots)
        if not 0 < num_rows == len(positions) == len(embeddings) <= self._num_slots:
            raise ValueError(f"{len(embeddings)} embeddings and {len(positions)} positions of {num_rows} slots")
        if not (min(slots) >= 0 and max(slots) < self._num_slots):
            raise ValueError(f"slots {slots} of {self._num_slots}")
        if not (min(positions) >= 0 and max(positions) < self._max_positions):
            raise ValueError(f"positions {positions} of {self._max_positions}")
        numbers = ctypes.c_int64 * num_rows
        embeddings = embeddings.contiguous()
        hidden = torch.empty(num_rows, self._hidden_size)
        self._decode(
            self._address,
            num_rows,
            embeddings.data_ptr(),
            numbers(*slots),
            numbers(*positions),
            hidden.data_ptr(),
        )
        return hidden

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """[N, hidden] float32 -> [N, num_speech_rows] float32. A row does not depend on the others."""
        hidden = hidden.contiguous()
        scores = torch.empty(len(hidden), self._num_speech_rows)
        self._score(self._address, len(hidden), hidden.data_ptr(), scores.data_ptr())
        return scores


def _matrix_names(config: LlmConfig) -> list[str]:
    parts = [f"self_attn.{part}_proj" for part in "qkvo"] + [f"mlp.{part}_proj" for part in ("gate", "up", "down")]
    layers = [f"{BODY}layers.{index}.{part}.weight" for index in range(config.num_layers) for part in parts]
    return [*layers, HEAD]


def _weights(config: LlmConfig, state_dict: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """All matrices one behind the other, in the order of decode.c: float16, one axis."""
    matrices = []
    for index in range(config.num_layers):
        layer = f"{BODY}layers.{index}."
        matrices.append(fused_qkv(config, state_dict, layer, "weight"))
        names = ("self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
        matrices += [state_dict[f"{layer}{name}.weight"] for name in names]
    return torch.cat([matrix.flatten() for matrix in (*matrices, state_dict[HEAD])])


def _vectors(config: LlmConfig, state_dict: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """All norms and biases one behind the other, in the order of decode.c: float32, one axis."""
    vectors = []
    for index in range(config.num_layers):
        layer = f"{BODY}layers.{index}."
        vectors.append(state_dict[f"{layer}input_layernorm.weight"])
        vectors.append(fused_qkv(config, state_dict, layer, "bias"))
        vectors.append(state_dict[f"{layer}post_attention_layernorm.weight"])
    bias = head_bias(config, state_dict)
    vectors.append(state_dict[f"{BODY}norm.weight"])
    vectors.append(torch.zeros(config.num_speech_rows) if bias is None else bias)
    return torch.cat([vector.float() for vector in vectors])


def _scratch_floats(config: LlmConfig, num_rows: int, max_positions: int) -> int:
    """As decode_* divides it; `num_rows` is the most."""
    query = config.num_heads * config.head_dim
    narrow = max(query, config.intermediate_size)
    wide = max(query + 2 * config.num_kv_heads * config.head_dim, 2 * config.intermediate_size)
    scores = config.num_heads // config.num_kv_heads * (max_positions + _WIDTHS_ARE_MULTIPLES_OF)
    return num_rows * (config.hidden_size + narrow + wide) + scores
