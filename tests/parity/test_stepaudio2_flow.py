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
from voicegate.engine.token2wav.flow.euler import euler_step
from voicegate.engine.token2wav.stepaudio2.flow.chunking import trimmed_context
from voicegate.engine.token2wav.stepaudio2.flow.context import (
    ChunkPlaces,
    MemoryEncoderContext,
    MemoryFrameContext,
    PlaceTable,
    Tails,
)
from voicegate.engine.token2wav.stepaudio2.flow.encoder import relative_positions
from voicegate.engine.token2wav.stepaudio2.flow.estimator import Estimator
from voicegate.engine.token2wav.stepaudio2.flow.memory import FlowMemory, Places
from voicegate.engine.token2wav.stepaudio2.flow.modulation import modulation_of, time_embedding
from voicegate.engine.token2wav.stepaudio2.flow.stream import ChunkStream
from voicegate.engine.token2wav.stepaudio2.flow.weights import ESTIMATOR_PREFIX, below

pytestmark = pytest.mark.unit

ATOL = 1e-4  # of the golden README; a wrong order of trimming is 1e-2 off
CPU = torch.device("cpu")


def close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=ATOL)


def places_of(known: Sequence[Places], num_new: Sequence[int], num_tokens: Sequence[int]) -> ChunkPlaces:
    """The last `num_new` frames of each row are new, of which `num_tokens` are not padding."""
    scratch = 100 * 10

    def table(rows: Sequence[Places]) -> PlaceTable:
        return PlaceTable.of(rows, scratch=scratch, length=max(map(len, rows)), device=CPU)

    new = [row[len(row) - count :] for row, count in zip(known, num_new, strict=True)]
    return ChunkPlaces(
        num_tokens=torch.tensor(num_tokens),
        first_frames=torch.tensor([len(row) - count for row, count in zip(known, num_new, strict=True)]),
        known_frames=table(known),
        new_frames=table(new),
        context=table(known),
    )


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
        places = places_of(known, [2 * length for length in lengths], lengths)
        context = MemoryEncoderContext(fresh_memory(), places, [no_tails()] * len(xs))
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
            places = places_of([np.arange(num_known)], [2 * num_tokens], [num_tokens])
            context = MemoryEncoderContext(memory, places, [tails])
            close(flow_model().encoder(window, exists, context), self.golden[f"chunk{chunk}_out"])
            tails = Tails(context.tails[False][0], context.tails[True][0], tails.estimator)
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
        """Of rows `halves` at the time of `row`: [halves, 1, n, 80]."""
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
        places = places_of([np.arange(num_frames)], [num_frames], [num_frames // 2])
        context = MemoryFrameContext(fresh_memory(), places, [no_tails()])
        # The same row for both halves: the memory has room for two.
        out = self.velocity("full", row, num_frames, _Doubled(context), halves=slice(row, row + 1))  # type: ignore[arg-type]
        close(out[0, 0].T, self.golden["full_out"][row, :, :num_frames])

    def test_chunks_and_what_they_leave(self) -> None:
        memory, tails, known = fresh_memory(), no_tails(), 0
        for chunk, num_frames in enumerate((14, 30, 6)):
            known += num_frames
            places = places_of([np.arange(known)], [num_frames], [num_frames // 2])
            context = MemoryFrameContext(memory, places, [tails])
            times = self.golden[f"chunk{chunk}_t"]
            assert times[0] == times[1]
            out = self.velocity(f"chunk{chunk}", 0, num_frames, context, halves=slice(None))
            close(out[:, 0].mT, self.golden[f"chunk{chunk}_out"])
            tails = Tails(tails.tokens, tails.frames, context.tails[:, :, :, :, 0])
            # Upstream: [layers, halves, conv1's channels then conv2's, 2]
            close(tails.estimator[0].permute(0, 2, 1, 4, 3).flatten(2, 3), self.golden[f"chunk{chunk}_cnn_cache"])
            kept = memory.estimator[:, 0, :known].permute(0, 2, 4, 1, 3, 5).flatten(4)  # [layers, halves, H, n, 2d]
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
    noise = normal("noise:offline_b1:0", (1, 80, 48))[0].T
    places = places_of([np.arange(48)], [48], [24])
    encoder_context = MemoryEncoderContext(flow.memory, places, [no_tails()])
    ids = torch.cat((golden["tokens"][:1], torch.full((1, 3), -1)), dim=1)
    mu = flow.model.mu(ids, encoder_context)
    cond = torch.zeros_like(mu)
    cond[:, :20] = golden["prompt_feat"][:1, :20]
    estimator = flow.model.estimator
    base = estimator.guided_base(estimator.conditioned_base(mu, flow.model.speaker_bias(golden["spk"][0])[None], cond))
    x, context = noise[None], MemoryFrameContext(flow.memory, places, [no_tails()])
    for step, width in enumerate(flow.model.schedule.widths):
        context.step = step
        velocity = estimator.velocity(x, base, flow.model.modulation(step), context)
        x = euler_step(x, velocity, width=width, cfg_rate=flow.model.config.cfg_rate)
    close(x.mT, golden["single_mel"])


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
        kept = flow.memory.estimator[:, [0, 9]][:, :, stream.context]  # [layers, 2, n, halves, 2, H, d]
        close(kept.permute(1, 0, 3, 5, 2, 4, 6).flatten(5), golden[f"{name}_estimator_att_cache_s0_s9"])


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
