"""Step-Audio2's flow against upstream's arrays: encoder, estimator, offline, streaming, and its own way of trimming."""

from collections.abc import Mapping, Sequence

import numpy as np
import pytest
import torch

from tests.support.stepaudio2 import (
    GoldenFlow,
    flow_config,
    flow_model,
    flow_state,
    golden_flow,
    golden_prompt,
    load_arrays,
    normal,
)
from voicegate.engine.families.stepaudio2.flow.chunk_buffers import ChunkBuffers, ChunkRow, ChunkShape, Tails
from voicegate.engine.families.stepaudio2.flow.chunking import trimmed_context
from voicegate.engine.families.stepaudio2.flow.context import MemoryEncoderContext, MemoryFrameContext
from voicegate.engine.families.stepaudio2.flow.encoder import relative_positions
from voicegate.engine.families.stepaudio2.flow.estimator import Estimator
from voicegate.engine.families.stepaudio2.flow.memory import FlowMemory, Places
from voicegate.engine.families.stepaudio2.flow.modulation import modulation_of, time_embedding
from voicegate.engine.families.stepaudio2.flow.passes import ChunkPasses
from voicegate.engine.families.stepaudio2.flow.stream import ChunkStream
from voicegate.engine.families.stepaudio2.flow.weights import ESTIMATOR_PREFIX, below

ATOL = 1e-4  # of the golden README; a wrong order of trimming is 1e-2 off
CPU = torch.device("cpu")


def close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=ATOL)


def filled(
    memory: FlowMemory, known: Sequence[Places], num_tokens: Sequence[int], tails: Tails | None = None
) -> ChunkBuffers:
    """For rows whose last tokens are new."""
    rows = [
        ChunkRow(
            window=[0] * count,
            num_tokens=count,
            noise_start=0,
            known=places,
            context=places,
            tails=tails or no_tails(),
            speaker_bias=torch.zeros(flow_config().estimator.dim),
        )
        for places, count in zip(known, num_tokens, strict=True)
    ]
    buffers = ChunkBuffers(flow_model(), memory, ChunkShape.of(rows))
    buffers.fill(rows)
    return buffers


def fresh_memory() -> FlowMemory:
    return FlowMemory(flow_config(), num_blocks=100, device=CPU, dtype=torch.float32)


def no_tails() -> Tails:
    return Tails.before_first(flow_config(), device=CPU, dtype=torch.float32)


class TestEncoder:
    golden = load_arrays("conformer.npz")

    def test_positions(self) -> None:
        # Upstream's table runs from the largest distance to the smallest.
        close(relative_positions(20, 32).flip(0), self.golden["full1_embed_pos"][0])

    @pytest.mark.parametrize("name", ["full1", "full2"])
    def test_whole_utterances(self, name: str) -> None:
        """As one last chunk. Upstream has embedded padding where a shorter row looks ahead, not zeros."""
        xs = self.golden[f"{name}_xs"]
        lengths = self.golden[f"{name}_lens"].tolist()
        window = torch.cat((xs, torch.zeros(len(xs), 3, xs.shape[2])), dim=1)
        exists = torch.arange(window.shape[1]).expand(len(xs), -1) < xs.shape[1]
        known = [np.arange(200 * row, 200 * row + 2 * length) for row, length in enumerate(lengths)]
        memory = fresh_memory()
        context = MemoryEncoderContext(memory, filled(memory, known, lengths))
        out = flow_model().encoder(window, exists, context)
        for row, length in enumerate(lengths):
            close(out[row, : 2 * length], self.golden[f"{name}_out"][row, : 2 * length])

    def test_chunks_and_what_they_leave(self) -> None:
        memory, tails, num_known = fresh_memory(), no_tails(), 0
        for chunk in range(4):
            xs, is_last = self.golden[f"chunk{chunk}_xs"], bool(self.golden[f"chunk{chunk}_last"])
            num_tokens = xs.shape[1] - (0 if is_last else 3)
            window = torch.cat((xs, torch.zeros(1, 3, xs.shape[2])), dim=1) if is_last else xs
            exists = (torch.arange(window.shape[1]) < xs.shape[1])[None]
            num_known += 2 * num_tokens
            buffers = filled(memory, [np.arange(num_known)], [num_tokens], tails)
            out = flow_model().encoder(window, exists, MemoryEncoderContext(memory, buffers))
            close(out, self.golden[f"chunk{chunk}_out"])
            tails = buffers.tails(0)
            close(torch.cat((tails.tokens, tails.frames)), self.golden[f"chunk{chunk}_cnn_cache"][0].T)
            if f"chunk{chunk}_att_cache" in self.golden:
                self.assert_kept(memory, num_known, self.golden[f"chunk{chunk}_att_cache"][:, 0])

    def assert_kept(self, memory: FlowMemory, num_frames: int, expected: torch.Tensor) -> None:
        """expected [layers, H, frames, keys and values]; those of tokens twice in a row."""
        num_layers, num_tokens = flow_config().encoder.num_layers, num_frames // 2
        for layer, cache in enumerate(expected):
            is_up = layer >= num_layers
            kept = memory.frames[layer - num_layers] if is_up else memory.tokens[layer]
            rows = kept[: num_frames if is_up else num_tokens]  # [n, 2, H, d]
            close(rows.permute(2, 0, 1, 3).flatten(2), cache[:, : len(rows)])


class TestEstimator:
    golden = load_arrays("dit.npz")

    def estimator(self, name: str) -> Estimator:
        state = below(flow_state(), ESTIMATOR_PREFIX)
        times = self.golden[f"{name}_t"].tolist()
        return Estimator(flow_config().estimator, state, times, dtype=torch.float32)

    def velocity(
        self, name: str, row: int, num_frames: int, context: MemoryFrameContext, *, halves: slice
    ) -> torch.Tensor:
        """Velocity of rows `halves` at the time of `row`: [halves, 1, n, 80]."""
        golden, estimator = self.golden, self.estimator(name)
        x, mu, cond = (golden[f"{name}_{part}"][halves, :, :num_frames].mT for part in ("x", "mu", "cond"))
        base = estimator.conditioned_base(mu, estimator.speaker_bias(golden[f"{name}_spks"][halves]), cond)
        modulation = modulation_of(estimator.modulation_table[row])
        return estimator.velocity(x[:, None], base[:, None], modulation, context)

    def test_time_embedding(self) -> None:
        state = below(flow_state(), ESTIMATOR_PREFIX)
        close(time_embedding(state, self.golden["full_t"]), self.golden["full_temb"])

    @pytest.mark.parametrize("row", [0, 1])
    def test_whole_utterances(self, row: int) -> None:
        num_frames = int(self.golden["full_mask"][row].sum())
        num_tokens = -(-num_frames // 2)
        memory = fresh_memory()
        buffers = filled(memory, [np.arange(2 * num_tokens)], [num_tokens])
        buffers.num_context.fill_(num_frames)  # an odd number: nothing sees the last token's second frame
        context = MemoryFrameContext(memory, buffers)
        # One row for both halves: the memory has room for two.
        out = self.velocity("full", row, 2 * num_tokens, _Doubled(context), halves=slice(row, row + 1))  # type: ignore[arg-type]
        close(out[0, 0, :num_frames].T, self.golden["full_out"][row, :, :num_frames])

    def test_chunks_and_what_they_leave(self) -> None:
        memory, tails, known = fresh_memory(), no_tails(), 0
        for chunk, num_frames in enumerate((14, 30, 6)):
            known += num_frames
            buffers = filled(memory, [np.arange(known)], [num_frames // 2], tails)
            context = MemoryFrameContext(memory, buffers)
            times = self.golden[f"chunk{chunk}_t"]
            assert times[0] == times[1]
            out = self.velocity(f"chunk{chunk}", 0, num_frames, context, halves=slice(None))
            close(out[:, 0].mT, self.golden[f"chunk{chunk}_out"])
            context.finish()
            tails = buffers.tails(0)
            # Upstream: [layers, halves, conv1's channels then conv2's, 2]
            close(tails.estimator[0].permute(0, 2, 1, 4, 3).flatten(2, 3), self.golden[f"chunk{chunk}_cnn_cache"])
            kept = memory.estimator[:, 0, :known].permute(0, 3, 4, 1, 2, 5).flatten(4)  # [layers, halves, H, n, 2d]
            newest_first = _newest_first([14, 30, 6][: chunk + 1])
            close(kept[:, :, :, newest_first], self.golden[f"chunk{chunk}_att_cache"])


class _Doubled:
    """One half where the memory has two: the other is a copy."""

    def __init__(self, context: MemoryFrameContext) -> None:
        self._context = context

    def with_history(self, hidden: torch.Tensor, *, layer: int, conv: int) -> torch.Tensor:
        return self._context.with_history(hidden.expand(2, -1, -1, -1), layer=layer, conv=conv)[:1]

    def attend(self, query: torch.Tensor, keys_values: torch.Tensor, *, layer: int) -> torch.Tensor:
        halves = keys_values.expand(2, -1, -1, -1, -1, -1)
        return self._context.attend(query.expand(2, -1, -1, -1, -1), halves, layer=layer)[:1]


def _newest_first(lengths: Sequence[int]) -> list[int]:
    """Upstream's order of frames that came in chunks of these lengths."""
    order: list[int] = []
    for length in lengths:
        start = len(order)
        order = [*range(start, start + length), *order]
    return order


def test_offline() -> None:
    """Prompt and speech in one piece, as a last chunk whose first frames are given."""
    golden, flow = load_arrays("flow_offline.npz"), golden_flow(num_blocks=20)
    places = np.arange(48)
    row = ChunkRow(
        window=golden["tokens"][0].tolist(),
        num_tokens=24,
        noise_start=0,
        known=places,
        context=places,
        tails=no_tails(),
        speaker_bias=flow.model.speaker_bias(golden["spk"][0]),
        prompt_mel=golden["prompt_feat"][0, :20],
    )
    buffers = ChunkBuffers(flow.model, flow.memory, ChunkShape.of([row]))
    buffers.fill([row])
    passes = ChunkPasses(flow.model, flow.memory)
    passes.begin(buffers)
    buffers.x.copy_(normal("noise:offline_b1:0", (1, 80, 48)).mT)  # upstream draws it for each call
    for _ in range(flow.model.schedule.num_steps):
        passes.advance(buffers)
    close(buffers.mel(0, 48)[None], golden["single_mel"])


def test_the_solvers_times() -> None:
    golden, schedule = load_arrays("flow_stream.npz"), flow_model().schedule
    assert list(schedule.times) == golden["t_used"].tolist()
    torch.testing.assert_close(torch.tensor(schedule.widths), golden["dt_used"], rtol=0, atol=1e-7)


def assert_state(flow: GoldenFlow, stream: ChunkStream, golden: Mapping[str, torch.Tensor], name: str) -> None:
    """`stream` as upstream has it behind the call `name`; its caches where the golden data have them."""
    close(torch.cat((stream.tails.tokens, stream.tails.frames)), golden[f"{name}_conformer_cnn_cache"][0].T)
    assert len(stream.known) == int(golden[f"{name}_conformer_att_len"])
    assert len(stream.context) == int(golden[f"{name}_estimator_att_len"])
    if f"{name}_estimator_cnn_cache_s0_s9" in golden:
        ends = stream.tails.estimator[[0, 9]]
        close(ends.permute(0, 1, 3, 2, 5, 4).flatten(3, 4), golden[f"{name}_estimator_cnn_cache_s0_s9"])
        kept = flow.memory.estimator[:, [0, 9]][:, :, stream.context]  # [layers, 2, n, 2, halves, H, d]
        close(kept.permute(1, 0, 4, 5, 2, 3, 6).flatten(5), golden[f"{name}_estimator_att_cache_s0_s9"])


def assert_streams(flow: GoldenFlow, golden: Mapping[str, torch.Tensor], *, tokens_at_once: int) -> None:
    """Whatever comes together, chunks are upstream's."""
    prompt = flow.runner.prepare(golden_prompt(golden))
    stream = flow.runner.open(prompt)
    assert_state(flow, stream, golden, "setup")
    tokens, chunk = golden["tokens"].tolist(), 0
    for start in range(0, len(tokens), tokens_at_once):
        stream.append(tokens[start : start + tokens_at_once])
        if start + tokens_at_once >= len(tokens):
            stream.finish()
        while stream.is_ready:
            assert len(stream.context) == int(golden[f"chunk{chunk}_noise_offset"])
            (mel,) = flow.render([stream])
            close(mel[None], golden[f"chunk{chunk}_mel"])
            assert_state(flow, stream, golden, f"chunk{chunk}")
            chunk += 1
    assert stream.is_exhausted
    assert f"chunk{chunk}_mel" not in golden


@pytest.mark.parametrize("tokens_at_once", [1, 7, 23])
def test_streaming(tokens_at_once: int) -> None:
    # Trimmed is not trimmed before there is too much, but has upstream's order.
    flow = golden_flow((5, 8, 4), context=trimmed_context)
    assert_streams(flow, load_arrays("flow_stream.npz"), tokens_at_once=tokens_at_once)


def test_trimming() -> None:
    flow = golden_flow((15, 25, 50, 12), context=trimmed_context)
    assert_streams(flow, load_arrays("flow_trim.npz"), tokens_at_once=111)


def test_without_trimming_it_is_the_same_up_to_where_upstream_trims() -> None:
    golden, flow = load_arrays("flow_trim.npz"), golden_flow((15, 25, 50, 12))
    stream = flow.runner.open(flow.runner.prepare(golden_prompt(golden)))
    stream.append(golden["tokens"].tolist())
    stream.finish()
    mels = [flow.render([stream])[0] for _ in range(5)]
    for chunk in range(3):  # the third is the first that begins with more than is kept
        close(mels[chunk][None], golden[f"chunk{chunk}_mel"])
    assert (mels[3] - golden["chunk3_mel"][0]).abs().max() > 1e-2
    assert len(stream.context) == 104 + 2 * 111
