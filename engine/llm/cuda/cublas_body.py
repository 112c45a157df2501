"""The decoder's network with cuBLAS's matrix products and torch's elementwise operations: what ours are compared with.

cuBLAS picks another kernel for another number of rows, so here a row's last bits depend on its batch.
"""

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own habit

from voicegate.engine.llm.cuda.body import DecoderBody


class CublasDecoderBody(DecoderBody):
    """As DecoderBody: fixed shapes, capturable, the same weights, cache and attention."""

    def run(self, num_rows: int) -> None:
        config, residual = self.config, self.residual[:num_rows]
        self._embed(num_rows)
        for index, weights in enumerate(self._weights.layers):
            normed = self._normed(residual)
            bias = weights.qkv_bias[: self._qkv_width].to(normed.dtype)
            self._store(index, torch.addmm(bias, normed, weights.qkv[: self._qkv_width].t()))
            self.attend(index, num_rows)
            residual += self._attended[:num_rows] @ weights.out[: config.hidden_size].t()
            gate_up = self._normed(residual) @ weights.gate_up[: 2 * config.intermediate_size].t()
            gate, up = gate_up.view(num_rows, -1, 2).unbind(2)
            residual += (F.silu(gate) * up) @ weights.down[: config.hidden_size].t()

    def score(self, num_samples: int) -> None:
        origin = self.layout.origin
        records = self.work[origin - 8 * num_samples : origin].view(num_samples, 8).flip(0)
        normed = self._normed(self.residual.index_select(0, records[:, 0]))
        num_ids = self.config.num_speech_rows
        self.scores[:num_samples, :num_ids] = normed @ self._weights.head[:num_ids].t()

    def _normed(self, residual: torch.Tensor) -> torch.Tensor:
        """RMSNorm but for its weight, which is folded into the product that follows."""
        return torch.rms_norm(residual, residual.shape[1:], None, self.config.rms_norm_eps).to(self._x.dtype)

    def _store(self, layer: int, qkv: torch.Tensor) -> None:
        """Rotate queries and keys; queries to their buffer, keys and values to the cache."""
        config, num_rows = self.config, len(qkv)
        records = self._row_words[: 4 * num_rows].view(num_rows, 4)
        slots, positions = records[:, 1], records[:, 2]
        query_width = config.num_heads * config.head_dim
        rotated_width = query_width + config.num_kv_heads * config.head_dim
        rotary = torch.view_as_complex(self._weights.rotary.view(-1, config.head_dim // 2, 2))
        pairs = torch.view_as_complex(qkv[:, :rotated_width].float().view(num_rows, -1, config.head_dim // 2, 2))
        turned = torch.view_as_real(pairs * rotary.index_select(0, positions)[:, None]).view(num_rows, rotated_width)
        self._query[:num_rows] = turned[:, :query_width]
        shape = (num_rows, config.num_kv_heads, config.head_dim)
        keys, values = turned[:, query_width:].to(qkv.dtype).view(shape), qkv[:, rotated_width:].view(shape)
        cache = self.cache[layer]
        slots, positions = slots.long(), positions.long()
        cache[0, slots, :, positions] = keys
        cache[1, slots, :, positions] = values
