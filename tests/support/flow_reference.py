"""The parts of one Euler step in torch's own operations: what every kernel must equal, and what runs on a CPU.

C = 2 CFG halves, R rows with L lines in all, D = dim, as in flow/cuda/ops.py. Where frames of a row meet, rows are laid
out at 50 frames each; what is beyond a row's end there is some other line, which nothing valid depends on.
"""

from dataclasses import replace

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it

from voicegate.engine.flow.block_pool import CFG_HALVES
from voicegate.engine.flow.chunking import FRAMES_PER_BLOCK
from voicegate.engine.flow.cuda import buffers
from voicegate.engine.flow.cuda.buffers import BatchView
from voicegate.engine.flow.cuda.ops import StepOps
from voicegate.engine.flow.cuda.tensors import FlowTensors
from voicegate.engine.flow.estimator import CONV_HISTORY, NORM_EPS, causal_conv, mish, rotate
from voicegate.engine.flow.euler import guide
from voicegate.engine.flow.weights import CONV_GROUPS


def embed(tensors: FlowTensors, batch: BatchView, hidden: torch.Tensor) -> None:
    projected = F.linear(batch.x.to(tensors.dtype), tensors.x_weight).float()
    hidden[0] = projected + batch.base
    hidden[1] = projected + tensors.input_bias
    position = by_row(batch, hidden.to(tensors.dtype))
    blocks = _whole_blocks(tensors, batch)
    for conv in range(len(tensors.conv_weights)):
        tails = tensors.pool.tails[:, :, conv]  # [blocks, steps, C, 30, D]
        tails[blocks, batch.step] = position[:, :, -CONV_HISTORY:].transpose(0, 1)
        history = tails[batch.rows[:, buffers.BEFORE], batch.step].transpose(0, 1)
        window = torch.cat((history, position), dim=2)
        weight = _as_conv2d(tensors.conv_weights[conv])
        position = mish(causal_conv(window, weight, tensors.conv_biases[conv]))
    hidden += by_line(batch, position)


def by_row(batch: BatchView, lines: torch.Tensor) -> torch.Tensor:
    """[C, L, ...] -> [C, R, 50, ...]."""
    frames = torch.arange(FRAMES_PER_BLOCK, device=lines.device)
    return lines[:, (batch.rows[:, buffers.START, None] + frames).clamp(max=batch.num_lines - 1)]


def by_line(batch: BatchView, rows: torch.Tensor) -> torch.Tensor:
    """[C, R, 50, ...] -> [C, L, ...]; padding gets the first line's."""
    return rows.flatten(1, 2)[:, batch.cells]


def _whole_blocks(tensors: FlowTensors, batch: BatchView) -> torch.Tensor:
    """[R]: where each row's state goes; a shorter block ends its stream, so that nobody will read its state."""
    is_whole = batch.rows[:, buffers.NUM_FRAMES] == FRAMES_PER_BLOCK
    return torch.where(is_whole, batch.rows[:, buffers.BLOCK], tensors.pool.scratch)


def _as_conv2d(weight: torch.Tensor) -> torch.Tensor:
    """Back from [groups, taps, in, out]."""
    _, taps, channels_in, channels_out = weight.shape
    return weight.permute(0, 3, 2, 1).reshape(CONV_GROUPS * channels_out, channels_in, 1, taps)


def norm(
    tensors: FlowTensors,
    batch: BatchView,
    hidden: torch.Tensor,
    *,
    update: torch.Tensor | None,
    gate_row: int,
    scale_row: int,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    modulation = tensors.modulations[batch.step][0]  # [rows, D]
    if update is not None:
        hidden += modulation[gate_row] * update.view(-1, *hidden.shape).sum(0, dtype=torch.float32)
    scale, shift = modulation[scale_row], modulation[scale_row + 1]
    normed = F.layer_norm(hidden, scale.shape, scale, shift, NORM_EPS)
    return saturated(normed, dtype or tensors.dtype).flatten(0, 1)


def saturated(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Converted as the kernels do it: torch's 8-bit floats overflow to NaN."""
    if dtype.itemsize > 1:
        return x.to(dtype)
    limit = torch.finfo(dtype).max
    return x.clamp(-limit, limit).to(dtype)


def attend(
    tensors: FlowTensors, batch: BatchView, qkv: torch.Tensor, layer: int, *, dtype: torch.dtype | None = None
) -> torch.Tensor:
    config = tensors.config
    qkv = by_row(batch, qkv.view(CFG_HALVES, batch.num_lines, 3, config.num_heads, config.head_dim))
    frames = torch.arange(FRAMES_PER_BLOCK, device=qkv.device)
    is_valid = frames < batch.rows[:, buffers.NUM_FRAMES, None]
    # A padding line may hold anything, even NaN, which a mask of scores would let through.
    qkv = qkv.masked_fill(~is_valid[:, :, None, None, None], 0)
    # A last block may end where the tables do.
    places = (batch.rows[:, buffers.FIRST_FRAME, None] + frames).clamp(max=len(tensors.cosines) - 1)
    rotate(qkv[..., :2, 0, :], torch.complex(tensors.cosines[places], tensors.sines[places]))
    # [R, q k v, C * H, 50, d]
    queries, keys, values = qkv.permute(3, 1, 0, 4, 2, 5).flatten(2, 3)
    context = tensors.pool.keys_values[:, :, layer]
    # 8-bit floats have no indexing of their own: the same bytes as integers.
    raw = context.view(torch.uint8) if context.dtype.itemsize == 1 else context
    new = saturated(torch.stack((keys, values), dim=1), context.dtype)
    raw[_whole_blocks(tensors, batch), batch.step] = new.view(raw.dtype)
    table = batch.rows[:, batch.table_column :]
    exists = torch.arange(table.shape[1], device=qkv.device) < batch.rows[:, buffers.NUM_FINISHED, None]
    # [R, blocks, k v, C * H, 50, d]; what does not exist may be NaN, too.
    finished = raw[table, batch.step].view(context.dtype).to(qkv.dtype)
    finished = finished.masked_fill(~exists[:, :, None, None, None, None], 0).permute(2, 0, 3, 1, 4, 5).flatten(3, 4)
    mask = torch.cat((exists.repeat_interleave(FRAMES_PER_BLOCK, dim=1), is_valid), dim=1)[:, None, None]
    attended = F.scaled_dot_product_attention(
        queries,
        torch.cat((finished[0], keys), dim=2),
        torch.cat((finished[1], values), dim=2),
        attn_mask=mask,
        scale=1.0,
    )
    num_rows, _, num_frames, channels = attended.shape
    attended = attended.view(num_rows, CFG_HALVES, config.num_heads, num_frames, channels)
    attended = by_line(batch, attended.permute(1, 0, 3, 2, 4)).reshape(CFG_HALVES * batch.num_lines, -1)
    return saturated(attended, dtype or qkv.dtype)


def linear(tensors: FlowTensors, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return F.linear(x, weight, bias)


def widen(tensors: FlowTensors, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return F.gelu(F.linear(x, weight, bias), approximate="tanh")


def float8_linear(tensors: FlowTensors, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """`linear` of an x and a weight in 8-bit floats; the result is of the activations' dtype."""
    return _scaled_linear(tensors, x, weight, bias).to(tensors.dtype)


def float8_widen(tensors: FlowTensors, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """`widen` of 8-bit floats; the result is one of the same."""
    return saturated(F.gelu(_scaled_linear(tensors, x, weight, bias), approximate="tanh"), x.dtype)


def _scaled_linear(tensors: FlowTensors, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return F.linear(x.float() * tensors.input_scale, weight.float() * tensors.weight_scale, bias.float())


def euler(tensors: FlowTensors, batch: BatchView, normed: torch.Tensor) -> None:
    velocity = F.linear(normed.float(), tensors.out_weight.float(), tensors.out_bias)
    guided = guide(velocity.view(CFG_HALVES, *batch.x.shape), cfg_rate=tensors.cfg_rate)
    batch.x.add_(tensors.widths[batch.step] * guided)


REFERENCE_OPS = StepOps(embed=embed, norm=norm, attend=attend, linear=linear, widen=widen, update=linear, euler=euler)
FLOAT8_REFERENCE_OPS = replace(REFERENCE_OPS, linear=float8_linear, widen=float8_widen, update=float8_linear)
