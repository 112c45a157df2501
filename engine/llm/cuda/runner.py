"""LlmRunner on CUDA: continuous batching over static slots by our kernels and graphs, steps launched ahead.

A line's arithmetic does not depend on its company: the same seed gives the same tokens alone and in any batch.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import torch

from voicegate.engine.device.capture import Capturable
from voicegate.engine.llm.backend import SequenceOutput, SequenceRequest
from voicegate.engine.llm.cuda.body import DecoderBody, max_shared_memory_bytes
from voicegate.engine.llm.cuda.config import CudaLlmConfig, TileTable, default_tiles
from voicegate.engine.llm.cuda.device_queue import DeviceQueue, Transfer
from voicegate.engine.llm.cuda.graphs import BucketedBody
from voicegate.engine.llm.cuda.held_tokens import HeldTokens
from voicegate.engine.llm.cuda.packing import Words
from voicegate.engine.llm.cuda.records import Records
from voicegate.engine.llm.cuda.steps import CudaStep, Member
from voicegate.engine.llm.cuda.weights import DecoderWeights
from voicegate.engine.llm.live_sequences import Live, LiveSequences
from voicegate.engine.llm.sequence import (
    Bistream,
    BistreamPolicy,
    Growing,
    SequenceState,
    Table,
    Unistream,
    ends_speech,
)
from voicegate.engine.model.config import LlmConfig, Sampling

_NO_TOKENS: Final = np.empty(0, np.int32)


class CudaLlmRunner(LiveSequences):
    """See LlmRunner for the promises. Not thread-safe: one thread calls it.

    All its device work goes to one CUDA stream, so a freed slot can be taken at once: whatever still runs for its
    last sequence ends before the next one's begins.
    """

    def __init__(
        self,
        config: LlmConfig,
        sampling: Sampling,
        state_dict: Mapping[str, torch.Tensor],
        *,
        num_slots: int,
        max_positions: int,
        device: torch.device | str = "cuda",
        dtype: torch.dtype = torch.bfloat16,
        policy: BistreamPolicy = BistreamPolicy.ROBUST,
        cuda: CudaLlmConfig | None = None,
        stream: torch.cuda.Stream | None = None,
    ) -> None:
        """`max_positions` per slot: prompt, text and speech of one sequence. `stream`: None makes one.

        `device` may be a CPU where Triton's interpreter runs the kernels (TRITON_INTERPRET=1): for tests.
        Raises WeightsError, and ValueError for more slots than the largest bucket has lines.
        """
        cuda = cuda if cuda is not None else CudaLlmConfig()
        max_lines = max(cuda.line_buckets)
        if num_slots > max_lines:
            raise ValueError(f"{num_slots} LLM slots need a line bucket of as many; the last is {max_lines}")
        device = torch.device(device)
        is_cuda = device.type == "cuda"
        if is_cuda and stream is None:
            stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        super().__init__(config, num_slots=num_slots, max_positions=max_positions, policy=policy)
        self._cuda = cuda
        self.body = DecoderBody(
            config,
            sampling,
            DecoderWeights(config, state_dict, device=device, dtype=dtype),
            num_slots=num_slots,
            max_positions=self._max_positions,
            max_lines=max_lines,
            max_samples=max_lines,
            tiles=cuda.tiles if cuda.tiles is not None else _tiles_for(device, dtype),
        )
        self.buckets = BucketedBody(
            self.body,
            line_buckets=cuda.line_buckets,
            num_slots=num_slots,
            stream=stream,
            is_eager=not cuda.has_graphs,
        )
        if stream is not None:
            stream.wait_stream(torch.cuda.current_stream(device))
        self._queue = DeviceQueue(self.body, self.buckets, is_cuda=is_cuda)
        self._records = Records(self._slots, window=self.body.draws.window)
        self._held = HeldTokens(num_slots)
        self._pending: deque[CudaStep] = deque()

    @property
    def graphs(self) -> Capturable:
        return self.buckets.graphs

    def add(self, request: SequenceRequest) -> None:
        super().add(request)
        slot = self.slot_of(request.sequence_id)
        self._records.begin(slot)
        self._held.begin(slot)

    def abort(self, sequence_id: int) -> None:
        live = self._lives.get(sequence_id)
        if live is not None:
            self._records.is_decoding[live.slot] = False  # of what is in flight nothing is taken
        super().abort(sequence_id)

    def is_runnable(self, sequence_id: int) -> bool:
        return bool(self.are_runnable((sequence_id,))[0])

    def are_runnable(self, sequence_ids: Sequence[int]) -> list[bool]:
        lives = [self._lives.get(sequence_id) for sequence_id in sequence_ids]
        slots = np.array([-1 if live is None else live.slot for live in lives], np.int64)
        num_in_flight = self._records.num_in_flight[slots]
        goes_on = (
            (num_in_flight < self._cuda.max_in_flight)
            & (self._slots.num_drawn[slots] < self._held.max_tokens[slots])
            & (self._slots.lengths[slots] < self._max_positions)
        )
        # What a decode feeds the device knows; anything else depends on what is in flight.
        can_run: list[bool] = (self._records.is_decoding[slots] & (goes_on | (num_in_flight == 0))).tolist()
        for place in np.flatnonzero(~self._records.is_decoding[slots] & (num_in_flight == 0)).tolist():
            live = lives[place]
            can_run[place] = live is not None and live.sequence.state is not SequenceState.WAITING
        if None in lives:
            can_run = [can and live is not None for can, live in zip(can_run, lives, strict=True)]
        return can_run

    # --- tokens that nobody needs yet -------------------------------------------------------------------------

    def tell_after(self, sequence_id: int, num_tokens: int) -> None:
        live = self._lives.get(sequence_id)
        if live is not None:
            self._held.tell_after(live.slot, num_tokens)

    def take_held(self, sequence_id: int) -> tuple[int, ...]:
        live = self._lives.get(sequence_id)
        return () if live is None else self._emitted(live, self._held.give(live.slot))

    # --- steps ------------------------------------------------------------------------------------------------

    def step(self, sequence_ids: Sequence[int]) -> list[SequenceOutput]:
        return self.launch(sequence_ids).outputs()

    def launch(self, sequence_ids: Sequence[int]) -> CudaStep:
        lives = self._runnable(sequence_ids)
        slots = np.array([live.slot for live in lives], np.int64)
        is_plain = self._records.is_decoding[slots] & (self._slots.lengths[slots] < self._max_positions)
        decodes = slots[is_plain]
        lines, samples = [self._records.decode_lines(decodes)], [self._records.decode_samples(decodes)]
        samples[0][:, 0] = np.arange(len(decodes))
        members: dict[int, Member] = {}
        num_lines, num_samples = len(decodes), len(decodes)
        for place in np.flatnonzero(~is_plain).tolist():
            member, fed, sample = self._feed(lives[place])
            members[place] = member
            if sample is not None:
                num_lines += len(fed)
                sample[:, 0] = num_lines - 1
                member.sample = num_samples
                num_samples += 1
                lines.append(fed)
                samples.append(sample)
        step = CudaStep(lives, slots, self._records.numbers[slots], is_plain, members, self._outputs_of)
        self._pending.append(step)
        self._records.num_in_flight[slots] += 1
        self._send(step, np.concatenate(lines), np.concatenate(samples))
        return step

    def _feed(self, live: Live) -> tuple[Member, Words, Words | None]:
        """What a sequence feeds that is no plain decode: its lines, and its sample where it has one."""
        slot, sequence = live.slot, live.sequence
        nothing = np.empty((0, 0), np.int32)
        if self._records.is_decoding[slot]:  # and its slot is full
            return Member(error=self._lack_of_room(live, 1)), nothing, None
        feed = sequence.feed
        if feed is None:
            return Member(), nothing, None  # ended by itself before anything was fed
        error = self._lack_of_room(live, len(feed.items))
        if error is not None:
            return Member(error=error), nothing, None
        first_speech_row, text = self._config.vocab_size, Table.TEXT
        lines = self._records.feed_lines(
            slot, [id_ if table is text else id_ + first_speech_row for table, id_ in feed.items]
        )
        if isinstance(sequence, Unistream | Growing):
            self._held.max_tokens[slot] = sequence.max_tokens
            self._records.begin_decoding(slot, min_tokens=sequence.min_tokens, forbids_end=feed.forbids_end)
            return Member(), lines, self._records.decode_samples(np.array([slot]))
        sample = self._records.bistream_sample(
            slot,
            num_decoded=len(sequence.decoded),
            ignore_eos=feed.ignore_eos,
            is_forced_fill=feed.is_forced_fill,
        )
        return Member(is_forced_fill=feed.is_forced_fill), lines, sample

    def _send(self, step: CudaStep, lines: Words, samples: Words) -> None:
        """In as few passes as the largest buckets allow; a line's keys are stored before later lines ask for them."""
        first_line, first_sample = 0, 0
        while first_line < len(lines):
            end_line = min(first_line + self.buckets.max_lines, len(lines))
            end_sample = int(np.searchsorted(samples[:, 0], end_line))
            part = samples[first_sample:end_sample].copy()
            part[:, 0] -= first_line
            while not self._queue.has_idle:
                self._make_room(step)
            step.transfers.append(self._queue.send(lines[first_line:end_line], part))
            first_line, first_sample = end_line, end_sample

    def _make_room(self, step: CudaStep) -> None:
        """Wait for the oldest transfer of all, which may be the very step's that is being sent."""
        oldest = next(pending for pending in self._pending if pending.transfers)
        if oldest is step:
            self._collect(step, step.transfers.pop(0))
        else:
            self._apply_oldest()

    # --- results ----------------------------------------------------------------------------------------------

    def _outputs_of(self, step: CudaStep) -> list[SequenceOutput]:
        while step.applied is None:
            self._apply_oldest()
        return step.applied

    def _apply_oldest(self) -> None:
        """Take the oldest step's tokens from the device, and tell its sequences."""
        step = self._pending.popleft()
        for transfer in step.transfers:
            self._collect(step, transfer)
        step.transfers = []
        step.applied = self._outputs(step, np.concatenate((_NO_TOKENS, *step.tokens)))

    def _collect(self, step: CudaStep, transfer: Transfer) -> None:
        step.tokens.append(transfer.wait())
        self._queue.give_back(transfer)

    def _outputs(self, step: CudaStep, tokens: npt.NDArray[np.int32]) -> list[SequenceOutput]:
        """Of those whose tokens are not held back."""
        records, slots = self._records, step.slots
        is_same = records.numbers[slots] == step.numbers  # else another sequence has the slot
        records.num_in_flight[slots[is_same]] -= 1
        places = step.plain_places
        is_alive = is_same[places] & records.is_decoding[slots[places]]
        drawn, places = tokens[: len(places)][is_alive], places[is_alive]
        told = places[self._held.take(slots[places], drawn, speech_ids=self._config.speech_token_size)]
        if not step.members:
            return [self._decode_output(step.lives[place]) for place in told.tolist()]
        outputs = {place: self._decode_output(step.lives[place]) for place in told.tolist()}
        for place, member in step.members.items():
            live = step.lives[place]
            if self._lives.get(live.sequence_id) is live:
                outputs[place] = self._member_output(live, member, tokens)
        return [outputs[place] for place in sorted(outputs)]

    def _decode_output(self, live: Live) -> SequenceOutput:
        """Of a unistream or growing sequence, with all that was held back of it."""
        tokens = self._held.give(live.slot)
        is_ended = ends_speech(self._config, tokens[-1])
        is_at_limit = self._held.num_taken[live.slot] >= self._held.max_tokens[live.slot]
        emitted = self._emitted(live, tokens)
        if isinstance(live.sequence, Growing):
            output = self._output(live, emitted)
            if output.is_paused:
                self._records.is_decoding[live.slot] = False  # it is read anew
            return output
        if is_ended or is_at_limit:
            self.abort(live.sequence_id)
        return SequenceOutput(
            live.sequence_id, emitted, is_final=is_ended or is_at_limit, is_truncated=is_at_limit and not is_ended
        )

    def _emitted(self, live: Live, tokens: list[int]) -> tuple[int, ...]:
        """Those that are speech; a growing sequence takes them all. Unistream makes a feed of each: it is not told."""
        if isinstance(live.sequence, Growing):
            for token in tokens:
                live.sequence.advance(token)
        return tuple([token for token in tokens if token < self._config.speech_token_size])

    def _member_output(self, live: Live, member: Member, tokens: npt.NDArray[np.int32]) -> SequenceOutput:
        if member.sample is None:
            return self._output(live, error=member.error)
        if member.is_forced_fill:
            return self._output(live, _speech(live.sequence.advance(None)))
        drawn = tokens[member.sample : member.sample + 1]
        if isinstance(live.sequence, Bistream):
            return self._output(live, _speech(live.sequence.advance(int(drawn[0]))))
        self._held.take(np.array([live.slot]), drawn, speech_ids=self._config.speech_token_size)
        return self._decode_output(live)


def _speech(token: int | None) -> tuple[int, ...]:
    return () if token is None else (token,)


def _tiles_for(device: torch.device, dtype: torch.dtype) -> TileTable:
    room = max_shared_memory_bytes(device) if device.type == "cuda" else None
    return default_tiles(is_float32=dtype == torch.float32, shared_memory_bytes=room)
