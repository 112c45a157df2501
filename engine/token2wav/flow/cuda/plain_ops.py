"""The parts of one Euler step in torch's own operations: the reference of every kernel, and its off switch.

Shapes are fixed and nothing is read back, so these can be captured too. C = 2 CFG halves, R rows with L lines in all
(lane.py), D = dim. Where frames of a row meet, rows are laid out at 50 frames each; what is beyond a row's end there is
some other line, which nothing valid depends on.
"""

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it

from voicegate.engine import units
from voicegate.engine.token2wav.flow.block_pool import CFG_HALVES
from voicegate.engine.token2wav.flow.cuda import lane
from voicegate.engine.token2wav.flow.cuda.lane import BlockBuffers
from voicegate.engine.token2wav.flow.cuda.tensors import FlowTensors
from voicegate.engine.token2wav.flow.estimator import CONV_HISTORY, NORM_EPS, causal_conv, mish, rotate
from voicegate.engine.token2wav.flow.euler import guide
from voicegate.engine.token2wav.flow.weights import CONV_GROUPS


def embed(tensors: FlowTensors, block: BlockBuffers, hidden: torch.Tensor) -> None:
    """Input projection and both positional convolutions -> hidden [C, L, D] float32; keeps whole blocks' conv tails."""
    projected = F.linear(block.x.to(tensors.dtype), tensors.x_weight).float()
    hidden[0] = projected + block.base
    hidden[1] = projected + tensors.input_bias
    position = by_row(block, hidden.to(tensors.dtype))
    blocks = _whole_blocks(tensors, block)
    for conv in range(len(tensors.conv_weights)):
        tails = tensors.pool.tails[:, :, conv]  # [blocks, steps, C, 30, D]
        tails[blocks, block.step] = position[:, :, -CONV_HISTORY:].transpose(0, 1)
        history = tails[block.rows[:, lane.BEFORE], block.step].transpose(0, 1)
        window = torch.cat((history, position), dim=2)
        weight = _as_conv2d(tensors.conv_weights[conv])
        position = mish(causal_conv(window, weight, tensors.conv_biases[conv]))
    hidden += by_line(block, position)


def by_row(block: BlockBuffers, lines: torch.Tensor) -> torch.Tensor:
    """[C, L, ...] -> [C, R, 50, ...]."""
    frames = torch.arange(units.FRAMES_PER_BLOCK, device=lines.device)
    return lines[:, (block.rows[:, lane.START, None] + frames).clamp(max=block.num_lines - 1)]


def by_line(block: BlockBuffers, rows: torch.Tensor) -> torch.Tensor:
    """[C, R, 50, ...] -> [C, L, ...]; padding gets the first line's."""
    return rows.flatten(1, 2)[:, block.cells]


def _whole_blocks(tensors: FlowTensors, block: BlockBuffers) -> torch.Tensor:
    """[R]: where each row's state goes; a shorter block ends its stream, so that nobody will read its state."""
    is_whole = block.rows[:, lane.NUM_FRAMES] == units.FRAMES_PER_BLOCK
    return torch.where(is_whole, block.rows[:, lane.BLOCK], tensors.pool.scratch)


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
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """hidden += gate * update, if there is one; -> adaLN of hidden [C * L, D]. Rows of the modulation table.

    The update may be in parts to be summed, one tensor [parts * C * L, D]. `dtype` of the result: by default as the
    activations.
    """
    modulation = tensors.modulations[block.step][0]  # [rows, D]
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
    tensors: FlowTensors, block: BlockBuffers, qkv: torch.Tensor, layer: int, *, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """qkv [C * L, 3 * H * d] -> [C * L, H * d] of `dtype`; whole blocks' keys and values go to the pool."""
    config = tensors.config
    qkv = by_row(block, qkv.view(CFG_HALVES, block.num_lines, 3, config.num_heads, config.head_dim))
    frames = torch.arange(units.FRAMES_PER_BLOCK, device=qkv.device)
    is_valid = frames < block.rows[:, lane.NUM_FRAMES, None]
    # A padding line may hold anything, even NaN, which a mask of scores would let through.
    qkv = qkv.masked_fill(~is_valid[:, :, None, None, None], 0)
    # A last block may end where the tables do.
    places = (block.rows[:, lane.FIRST_FRAME, None] + frames).clamp(max=len(tensors.cosines) - 1)
    rotate(qkv[..., :2, 0, :], torch.complex(tensors.cosines[places], tensors.sines[places]))
    # [R, q k v, C * H, 50, d]
    queries, keys, values = qkv.permute(3, 1, 0, 4, 2, 5).flatten(2, 3)
    context = tensors.pool.keys_values[:, :, layer]
    # 8-bit floats have no indexing of their own: the same bytes as integers.
    raw = context.view(torch.uint8) if context.dtype.itemsize == 1 else context
    new = saturated(torch.stack((keys, values), dim=1), context.dtype)
    raw[_whole_blocks(tensors, block), block.step] = new.view(raw.dtype)
    table = block.rows[:, block.table_column :]
    exists = torch.arange(table.shape[1], device=qkv.device) < block.rows[:, lane.NUM_FINISHED, None]
    # [R, blocks, k v, C * H, 50, d]; what does not exist may be NaN, too.
    finished = raw[table, block.step].view(context.dtype).to(qkv.dtype)
    finished = finished.masked_fill(~exists[:, :, None, None, None, None], 0).permute(2, 0, 3, 1, 4, 5).flatten(3, 4)
    mask = torch.cat((exists.repeat_interleave(units.FRAMES_PER_BLOCK, dim=1), is_valid), dim=1)[:, None, None]
    attended = F.scaled_dot_product_attention(
        queries,
        torch.cat((finished[0], keys), dim=2),
        torch.cat((finished[1], values), dim=2),
        attn_mask=mask,
        scale=1.0,
    )
    num_rows, _, num_frames, channels = attended.shape
    attended = attended.view(num_rows, CFG_HALVES, config.num_heads, num_frames, channels)
    attended = by_line(block, attended.permute(1, 0, 3, 2, 4)).reshape(CFG_HALVES * block.num_lines, -1)
    return saturated(attended, dtype or qkv.dtype)


def linear(tensors: FlowTensors, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """x [lines, in] @ weight [out, in].T + bias."""
    return F.linear(x, weight, bias)


def widen(tensors: FlowTensors, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """The feed-forward's first half: linear, then GELU's tanh form."""
    return F.gelu(F.linear(x, weight, bias), approximate="tanh")


def float8_linear(tensors: FlowTensors, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """`linear` of an x and a weight in 8-bit floats; the result is of the activations' dtype."""
    return _scaled_linear(tensors, x, weight, bias).to(tensors.dtype)


def float8_widen(tensors: FlowTensors, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """`widen` of 8-bit floats; the result is one of the same."""
    return saturated(F.gelu(_scaled_linear(tensors, x, weight, bias), approximate="tanh"), x.dtype)


def _scaled_linear(tensors: FlowTensors, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return F.linear(x.float() * tensors.input_scale, weight.float() * tensors.weight_scale, bias.float())


def euler(tensors: FlowTensors, block: BlockBuffers, normed: torch.Tensor) -> None:
    """normed [C * L, D] -> velocity, guidance, and x one Euler step further, in place."""
    velocity = F.linear(normed.float(), tensors.out_weight.float(), tensors.out_bias)
    guided = guide(velocity.view(CFG_HALVES, *block.x.shape), cfg_rate=tensors.cfg_rate)
    block.x.add_(tensors.widths[block.step] * guided)
