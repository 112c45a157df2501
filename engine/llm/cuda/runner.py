"""LlmRunner on CUDA: continuous batching over static slots by our kernels and graphs, steps launched ahead.

A row's arithmetic does not depend on its company: the same seed gives the same tokens alone and in any batch.
"""

from collections import deque
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from voicegate.engine.device.capture import Capturable
from voicegate.engine.llm.backend import InvalidRequest, SequenceOutput, SequenceRequest, UnknownSequence
from voicegate.engine.llm.cuda.body import DecoderBody, max_shared_memory_bytes
from voicegate.engine.llm.cuda.config import CudaLlmConfig, TileTable, default_tiles
from voicegate.engine.llm.cuda.device_queue import DeviceQueue, Transfer
from voicegate.engine.llm.cuda.graphs import BucketedBody
from voicegate.engine.llm.cuda.packing import Words
from voicegate.engine.llm.cuda.slots import SlotTable
from voicegate.engine.llm.cuda.steps import CudaStep, Live, Member
from voicegate.engine.llm.cuda.weights import DecoderWeights
from voicegate.engine.llm.requests import check_text_ids, growing, make_sequence, streaming
from voicegate.engine.llm.sequence import BistreamPolicy, Growing, SequenceState, Table, Unistream
from voicegate.engine.model.config import LlmConfig, SamplingConfig


class CudaLlmRunner:
    """See LlmRunner for the promises. Not thread-safe: one thread calls it.

    All its device work goes to one CUDA stream, so a freed slot can be taken at once: whatever still runs for its
    last sequence ends before the next one's begins.
    """

    def __init__(
        self,
        config: LlmConfig,
        sampling: SamplingConfig,
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
        Raises WeightsError, and ValueError for more slots than the largest bucket has rows.
        """
        cuda = cuda if cuda is not None else CudaLlmConfig()
        if num_slots > max(cuda.row_buckets):
            raise ValueError(f"{num_slots} LLM slots need a row bucket of as many; the last is {max(cuda.row_buckets)}")
        device = torch.device(device)
        is_cuda = device.type == "cuda"
        if is_cuda and stream is None:
            stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._config = config
        self._policy = policy
        self._cuda = cuda
        self._max_positions = min(max_positions, config.max_positions)
        self.body = DecoderBody(
            config,
            sampling,
            DecoderWeights(config, state_dict, device=device, dtype=dtype),
            num_slots=num_slots,
            max_positions=self._max_positions,
            max_rows=max(cuda.row_buckets),
            max_samples=max(cuda.row_buckets),
            tiles=cuda.tiles if cuda.tiles is not None else _tiles_for(device, dtype),
        )
        self.buckets = BucketedBody(
            self.body,
            row_buckets=cuda.row_buckets,
            num_slots=num_slots,
            stream=stream,
            is_eager=not cuda.has_graphs,
        )
        if stream is not None:
            stream.wait_stream(torch.cuda.current_stream(device))
        self._queue = DeviceQueue(self.body, self.buckets, is_cuda=is_cuda)
        self._slots = SlotTable(num_slots, window=sampling.window)
        self._lives: dict[int, Live] = {}
        self._pending: deque[CudaStep] = deque()

    @property
    def graphs(self) -> Capturable:
        return self.buckets.graphs

    # --- sequences --------------------------------------------------------------------------------------------

    @property
    def num_free_slots(self) -> int:
        return self._slots.num_free

    @property
    def free_slots(self) -> list[int]:
        """Rows of the cache that hold nothing anybody will read."""
        return self._slots.free_slots

    def slot_of(self, sequence_id: int) -> int:
        """Raises KeyError for a sequence that is not alive."""
        return self._lives[sequence_id].slot

    def add(self, request: SequenceRequest) -> None:
        if request.sequence_id in self._lives:
            raise InvalidRequest(f"sequence {request.sequence_id} is alive already")
        sequence = make_sequence(self._config, request, self._policy)
        slot = self._slots.allocate(request.seed)
        live = self._lives[request.sequence_id] = Live(request.sequence_id, sequence, slot)
        if isinstance(sequence, Unistream):
            self._slots.min_tokens[slot] = sequence.min_tokens
            live.max_tokens = sequence.max_tokens

    def push_text(self, sequence_id: int, text_ids: Sequence[int]) -> None:
        live = self._lives.get(sequence_id)
        if live is None:
            return
        check_text_ids(self._config, text_ids)
        streaming(sequence_id, live.sequence).push_text(text_ids)

    def end_text(self, sequence_id: int) -> None:
        live = self._lives.get(sequence_id)
        if live is not None:
            streaming(sequence_id, live.sequence).end_text()

    def read(self, sequence_id: int, text_ids: Sequence[int], *, until: int | None) -> None:
        live = self._lives.get(sequence_id)
        if live is None:
            return
        check_text_ids(self._config, text_ids)
        sequence, slots, slot = growing(sequence_id, live.sequence), self._slots, live.slot
        sequence.read(tuple(text_ids), until=until)
        live.max_tokens = sequence.max_tokens
        slots.min_tokens[slot] = sequence.min_tokens
        slots.forbids_end[slot] = until is not None
        slots.is_decoding[slot] = False
        if sequence.feed is not None and sequence.feed.num_kept is not None:
            slots.lengths[slot] = sequence.feed.num_kept

    def abort(self, sequence_id: int) -> None:
        live = self._lives.pop(sequence_id, None)
        if live is not None:
            self._slots.free(live.slot)

    def is_runnable(self, sequence_id: int) -> bool:
        live = self._lives.get(sequence_id)
        if live is None:
            return False
        if live.num_in_flight == 0:
            return live.sequence.state is not SequenceState.WAITING
        slots, slot = self._slots, live.slot
        return bool(
            slots.is_decoding[slot]
            and live.num_in_flight < self._cuda.max_in_flight
            and slots.num_drawn[slot] < live.max_tokens
            and slots.lengths[slot] < self._max_positions
        )

    # --- steps ------------------------------------------------------------------------------------------------

    def step(self, sequence_ids: Sequence[int]) -> list[SequenceOutput]:
        return self.launch(sequence_ids).outputs()

    def launch(self, sequence_ids: Sequence[int]) -> CudaStep:
        lives = self._lives_to_step(sequence_ids)
        slots = np.fromiter((live.slot for live in lives), np.int64, len(lives))
        is_plain = self._slots.is_decoding[slots] & (self._slots.lengths[slots] < self._max_positions)
        decodes = slots[is_plain]
        rows, samples = [self._slots.decode_rows(decodes)], [self._slots.decode_samples(decodes)]
        samples[0][:, 0] = np.arange(len(decodes))
        members: dict[int, Member] = {}
        num_rows, num_samples = len(decodes), len(decodes)
        for place in np.flatnonzero(~is_plain).tolist():
            member, fed, sample = self._feed(lives[place])
            members[place] = member
            if sample is not None:
                num_rows += len(fed)
                sample[:, 0] = num_rows - 1
                member.sample = num_samples
                num_samples += 1
                rows.append(fed)
                samples.append(sample)
        step = CudaStep(lives, members, self._outputs_of)
        self._pending.append(step)
        for live in lives:
            live.num_in_flight += 1
        self._send(step, np.concatenate(rows), np.concatenate(samples))
        return step

    def _lives_to_step(self, sequence_ids: Sequence[int]) -> list[Live]:
        wrong = [sequence_id for sequence_id in sequence_ids if not self.is_runnable(sequence_id)]
        if wrong:
            raise UnknownSequence(f"these sequences have ended, never were, wait for text or for a step: {wrong}")
        if len(set(sequence_ids)) != len(sequence_ids):
            raise UnknownSequence(f"a sequence is named twice: {list(sequence_ids)}")
        return [self._lives[sequence_id] for sequence_id in sequence_ids]

    def _feed(self, live: Live) -> tuple[Member, Words, Words | None]:
        """What a sequence feeds that is no plain decode: its rows, and its sample where it has one."""
        slots, slot, sequence = self._slots, live.slot, live.sequence
        nothing = np.empty((0, 0), np.int32)
        feed = None if slots.is_decoding[slot] else sequence.feed
        if feed is None and not slots.is_decoding[slot]:
            return Member(), nothing, None  # ended by itself before anything was fed
        if feed is None or slots.lengths[slot] + len(feed.items) > self._max_positions:
            error = f"text and speech need more than the {self._max_positions} positions of an LLM slot"
            return Member(error=error), nothing, None
        first_speech_row = self._config.vocab_size
        rows = slots.feed_rows(slot, [id_ + first_speech_row * (table is Table.SPEECH) for table, id_ in feed.items])
        if isinstance(sequence, Unistream | Growing):
            slots.is_decoding[slot] = True
            return Member(), rows, slots.decode_samples(np.array([slot]))
        sample = slots.bistream_sample(
            slot,
            num_decoded=len(sequence.decoded),
            ignore_eos=feed.ignore_eos,
            is_forced_fill=feed.is_forced_fill,
        )
        return Member(is_forced_fill=feed.is_forced_fill), rows, sample

    def _send(self, step: CudaStep, rows: Words, samples: Words) -> None:
        """In as few passes as the largest buckets allow; a row's keys are stored before later rows ask for them."""
        first_row, first_sample = 0, 0
        while first_row < len(rows):
            end_row = min(first_row + self.buckets.max_rows, len(rows))
            end_sample = int(np.searchsorted(samples[:, 0], end_row))
            part = samples[first_sample:end_sample].copy()
            part[:, 0] -= first_row
            while not self._queue.has_idle:
                self._make_room(step)
            step.transfers.append(self._queue.send(rows[first_row:end_row], part))
            first_row, first_sample = end_row, end_sample

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
        step.applied = self._outputs(step, step.tokens)

    def _collect(self, step: CudaStep, transfer: Transfer) -> None:
        step.tokens += transfer.wait()
        self._queue.give_back(transfer)

    def _outputs(self, step: CudaStep, tokens: list[int]) -> list[SequenceOutput]:
        outputs = []
        num_decodes = 0
        for place, live in enumerate(step.lives):
            live.num_in_flight -= 1
            member = step.members.get(place)
            if member is None:
                token, num_decodes = tokens[num_decodes], num_decodes + 1
                if self._lives.get(live.sequence_id) is live:
                    outputs.append(self._decode_output(live, token))
            elif self._lives.get(live.sequence_id) is live:
                outputs.append(self._member_output(live, member, tokens))
        return outputs

    def _decode_output(self, live: Live, token: int) -> SequenceOutput:
        if isinstance(live.sequence, Unistream):
            return self._unistream_output(live, token)
        return self._sequence_output(live, live.sequence.advance(token))

    def _unistream_output(self, live: Live, token: int) -> SequenceOutput:
        if token >= self._config.speech_token_size:
            self.abort(live.sequence_id)
            return SequenceOutput(live.sequence_id, is_final=True)
        live.num_emitted += 1
        if live.num_emitted < live.max_tokens:
            return SequenceOutput(live.sequence_id, (token,))
        self.abort(live.sequence_id)
        return SequenceOutput(live.sequence_id, (token,), is_final=True, is_truncated=True)

    def _member_output(self, live: Live, member: Member, tokens: list[int]) -> SequenceOutput:
        if member.sample is None:
            return self._sequence_output(live, None, error=member.error)
        token = tokens[member.sample]
        if not member.is_forced_fill:
            return self._decode_output(live, token)
        return self._sequence_output(live, live.sequence.advance(None))

    def _sequence_output(self, live: Live, token: int | None, *, error: str | None = None) -> SequenceOutput:
        """`token`: what the sequence has made of the last step, if it is speech."""
        sequence = live.sequence
        emitted = () if token is None else (token,)
        error = error or sequence.failure
        is_truncated = sequence.state is SequenceState.TRUNCATED
        is_final = is_truncated or sequence.state is SequenceState.FINISHED
        if is_final or error:
            self.abort(live.sequence_id)
        is_paused = isinstance(sequence, Growing) and sequence.state is SequenceState.WAITING
        return SequenceOutput(live.sequence_id, emitted, is_final, is_truncated, error, is_paused)


def _tiles_for(device: torch.device, dtype: torch.dtype) -> TileTable:
    room = max_shared_memory_bytes(device) if device.type == "cuda" else None
    return default_tiles(is_float32=dtype == torch.float32, shared_memory_bytes=room)
