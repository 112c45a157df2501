"""The parts of one Euler step in torch's own operations: the reference of every kernel, and its off switch.

Shapes are fixed and nothing is read back, so these can be captured too. C = 2 CFG halves, B rows, n frames, D = dim.
"""

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it

from engine import units
from engine.token2wav.flow.cuda import lane
from engine.token2wav.flow.cuda.lane import BlockBuffers
from engine.token2wav.flow.cuda.tensors import FlowTensors
from engine.token2wav.flow.estimator import CONV_HISTORY, NORM_EPS, causal_conv, mish, rotate
from engine.token2wav.flow.euler import guide
from engine.token2wav.flow.weights import CONV_GROUPS


def embed(tensors: FlowTensors, block: BlockBuffers, hidden: torch.Tensor) -> None:
    """Input projection and both positional convolutions -> hidden [C, B, n, D] float32; keeps the new conv tails."""
    projected = F.linear(block.x.to(tensors.dtype), tensors.x_weight).float()
    hidden[0] = projected + block.base
    hidden[1] = projected + tensors.input_bias
    position = hidden.to(tensors.dtype)
    for conv in range(len(tensors.conv_weights)):
        tails = tensors.pool.tails[:, :, conv]  # [blocks, steps, C, 30, D]
        if block.num_frames == units.FRAMES_PER_BLOCK:
            tails[block.rows[:, lane.BLOCK], block.step] = position[:, :, -CONV_HISTORY:].transpose(0, 1)
        history = tails[block.rows[:, lane.BEFORE], block.step].transpose(0, 1)
        window = torch.cat((history, position), dim=2)
        weight = _as_conv2d(tensors.conv_weights[conv])
        position = mish(causal_conv(window, weight, tensors.conv_biases[conv]))
    hidden += position


def _as_conv2d(weight: torch.Tensor) -> torch.Tensor:
    """Back from [groups, taps, in, out]."""
    _, taps, channels_in, channels_out = weight.shape
    return weight.permute(0, 3, 2, 1).reshape(CONV_GROUPS * channels_out, channels_in, 1, taps)


def norm(
    tensors: FlowTensors,
    block: BlockBuffers,
    hidden: torch.Tensor,
    *,
    update: torch.Tensor | None,
    gate_row: int,
    scale_row: int,
) -> torch.Tensor:
    """hidden += gate * update, if there is one; -> adaLN of hidden [C * B * n, D]. Rows of the modulation table.

    The update may be in parts to be summed, one tensor [parts * C * B * n, D].
    """
    modulation = tensors.modulations[block.step][0]  # [rows, D]
    if update is not None:
        hidden += modulation[gate_row] * update.view(-1, *hidden.shape).sum(0, dtype=torch.float32)
    scale, shift = modulation[scale_row], modulation[scale_row + 1]
    return F.layer_norm(hidden, scale.shape, scale, shift, NORM_EPS).to(tensors.dtype).flatten(0, 2)


def attend(tensors: FlowTensors, block: BlockBuffers, qkv: torch.Tensor, layer: int) -> torch.Tensor:
    """qkv [C * B * n, 3 * H * d] -> [C * B * n, H * d]; whole blocks' keys and values go to the pool."""
    config = tensors.config
    num_rows, num_frames = block.num_rows, block.num_frames
    qkv = qkv.view(2, num_rows, num_frames, 3, config.num_heads, config.head_dim).clone()
    frames = block.rows[:, lane.FIRST_FRAME, None] + torch.arange(num_frames, device=qkv.device)
    rotate(qkv[..., :2, 0, :], torch.complex(tensors.cosines[frames], tensors.sines[frames]))
    # [B, q k v, C * H, n, d]
    queries, keys, values = qkv.permute(3, 1, 0, 4, 2, 5).flatten(2, 3)
    context = tensors.pool.keys_values[:, :, layer]
    # 8-bit floats have no indexing of their own: the same bytes as integers.
    raw = context.view(torch.uint8) if context.dtype.itemsize == 1 else context
    if num_frames == units.FRAMES_PER_BLOCK:
        limit = torch.finfo(context.dtype).max  # torch's 8-bit floats overflow to NaN, the kernel's conversion does not
        new = torch.stack((keys, values), dim=1).clamp(-limit, limit).to(context.dtype)
        raw[block.rows[:, lane.BLOCK], block.step] = new.view(raw.dtype)
    table = block.rows[:, block.table_column :]
    exists = torch.arange(table.shape[1], device=qkv.device) < block.rows[:, lane.NUM_FINISHED, None]
    # [B, blocks, k v, C * H, 50, d]; what does not exist may be NaN, which a mask of scores would let through.
    finished = raw[table, block.step].view(context.dtype).to(qkv.dtype)
    finished = finished.masked_fill(~exists[:, :, None, None, None, None], 0).permute(2, 0, 3, 1, 4, 5).flatten(3, 4)
    is_valid = torch.arange(num_frames, device=qkv.device) < block.rows[:, lane.NUM_FRAMES, None]
    mask = torch.cat((exists.repeat_interleave(units.FRAMES_PER_BLOCK, dim=1), is_valid), dim=1)[:, None, None]
    attended = F.scaled_dot_product_attention(
        queries,
        torch.cat((finished[0], keys), dim=2),
        torch.cat((finished[1], values), dim=2),
        attn_mask=mask,
        scale=1.0,
    )
    attended = attended.view(num_rows, 2, config.num_heads, num_frames, config.head_dim)
    return attended.permute(1, 0, 3, 2, 4).reshape(2 * num_rows * num_frames, -1)


def linear(tensors: FlowTensors, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """x [lines, in] @ weight [out, in].T + bias."""
    return F.linear(x, weight, bias)


def widen(tensors: FlowTensors, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """The feed-forward's first half: linear, then GELU's tanh form."""
    return F.gelu(F.linear(x, weight, bias), approximate="tanh")


def euler(tensors: FlowTensors, block: BlockBuffers, normed: torch.Tensor) -> None:
    """normed [C * B * n, D] -> velocity, guidance, and x one Euler step further, in place."""
    velocity = F.linear(normed.float(), tensors.out_weight.float(), tensors.out_bias)
    guided = guide(velocity.view(2, *block.x.shape), cfg_rate=tensors.cfg_rate)
    block.x.add_(tensors.widths[block.step] * guided)
