"""LlmRunner on CUDA: continuous batching over static slots by our kernels and graphs, steps launched ahead.

A line's arithmetic does not depend on the others: the same seed gives the same tokens alone and in any batch.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch

from voicegate.engine.device.capture import Capturable
from voicegate.engine.device.lanes import HOST_LANE, CudaLane, Lane
from voicegate.engine.device.overlap import can_overlap
from voicegate.engine.llm.backend import SequenceOutput, SequenceRequest
from voicegate.engine.llm.bistream import Bistream
from voicegate.engine.llm.cuda.body import DecoderBody, max_shared_memory_bytes
from voicegate.engine.llm.cuda.config import CudaLlmConfig, TileTable, default_tiles
from voicegate.engine.llm.cuda.device_queue import CudaStep, DeviceQueue, Member, Transfer
from voicegate.engine.llm.cuda.graphs import BucketedBody
from voicegate.engine.llm.cuda.packing import Words
from voicegate.engine.llm.cuda.records import Records
from voicegate.engine.llm.cuda.weights import DecoderWeights
from voicegate.engine.llm.feed import SequenceState, ends_speech
from voicegate.engine.llm.runner import Live, LlmRunner
from voicegate.engine.llm.sequence import Growing, Unistream
from voicegate.engine.model.config import LlmConfig, Sampling


class CudaLlmRunner(LlmRunner):
    """Not thread-safe: one thread calls it.

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
        cuda: CudaLlmConfig | None = None,
        lane: Lane | None = None,
    ) -> None:
        """`max_positions` per slot: prompt, text and speech of one sequence. `lane`: None makes one.

        `device` may be a CPU where Triton's interpreter runs the kernels (TRITON_INTERPRET=1): for tests.
        Raises WeightsError, and ValueError for more slots than the largest bucket has lines.
        """
        cuda = cuda if cuda is not None else CudaLlmConfig()
        max_lines = max(cuda.line_buckets)
        if num_slots > max_lines:
            raise ValueError(f"{num_slots} LLM slots need a line bucket of as many; the last is {max_lines}")
        device = torch.device(device)
        is_cuda = device.type == "cuda"
        if lane is None:
            lane = CudaLane(device, urgency=0) if is_cuda else HOST_LANE
        stream = lane.stream if isinstance(lane, CudaLane) else None
        super().__init__(config, lane, num_slots=num_slots, max_positions=max_positions)
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
            is_pdl=cuda.overlaps and can_overlap(device),
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
        self._pending: deque[CudaStep] = deque()

    @property
    def graphs(self) -> Capturable:
        return self.buckets.graphs

    def add(self, request: SequenceRequest) -> None:
        super().add(request)
        self._records.begin(self._lives[request.sequence_id].slot)

    def _can_launch(self, live: Live) -> bool:
        if not live.num_in_flight:
            return live.sequence.state is not SequenceState.WAITING
        return live.is_decoding and live.num_in_flight < self._cuda.max_in_flight and live.num_to_launch > 0

    # --- tokens that nobody needs yet -------------------------------------------------------------------------

    def tell_after(self, sequence_id: int, num_tokens: int) -> None:
        live = self._lives.get(sequence_id)
        if live is not None:
            live.tell_after = num_tokens

    def take_held(self, sequence_id: int) -> tuple[int, ...]:
        live = self._lives.get(sequence_id)
        return self._give(live) if live is not None and live.held else ()

    def _give(self, live: Live) -> tuple[int, ...]:
        """Those of the held tokens that are speech. From now on each is told, until fewer are wanted.

        A growing sequence takes them; unistream, which would make a feed of each, needs none.
        """
        tokens, live.held, live.tell_after = live.held, [], 1
        if isinstance(live.sequence, Growing):
            for token in tokens:
                live.sequence.advance(token)
        return tuple([token for token in tokens if token < self._config.speech_token_size])

    # --- steps ------------------------------------------------------------------------------------------------

    def _begin(self, lives: Sequence[Live]) -> Callable[[], list[SequenceOutput]]:
        members: dict[int, Member] = {}
        slots: list[int] = []
        for place, live in enumerate(lives):
            if live.is_decoding and live.num_to_launch > 0:
                live.num_to_launch -= 1
                slots.append(live.slot)
            else:
                members[place] = Member()
        lines, samples = self._decode_records(slots)
        num_lines = num_samples = len(slots)
        for place, member in members.items():
            fed, sample = self._feed(lives[place], member)
            if sample is not None:
                num_lines += len(fed)
                sample[:, 0] = num_lines - 1
                member.sample = num_samples
                num_samples += 1
                lines.append(fed)
                samples.append(sample)
        step = CudaStep(lives, members)
        self._pending.append(step)
        for live in lives:
            live.num_in_flight += 1
        if lines:
            try:
                self._send(step, _joined(lines), _joined(samples))
            except BaseException:
                self._drop(step)
                raise
        return partial(self._outputs_of, step)

    def _drop(self, step: CudaStep) -> None:
        """It could not be sent: nothing comes of it, and the steps of others go on."""
        self._pending.remove(step)
        for live in step.lives:
            live.num_in_flight -= 1
        for transfer in step.transfers:
            self._collect(step, transfer)

    def _decode_records(self, slots: list[int]) -> tuple[list[Words], list[Words]]:
        """Lines and samples of these slots' decodes, together; nothing where there are none."""
        if not slots:
            return [], []
        decodes = np.array(slots, np.int64)
        return [self._records.decode_lines(decodes)], [self._records.decode_samples(decodes)]

    def _feed(self, live: Live, member: Member) -> tuple[Words, Words | None]:
        """Records of a sequence that is in no plain decode: its lines, and its sample where it has one."""
        slot, sequence = live.slot, live.sequence
        nothing = np.empty((0, 0), np.int32)
        if live.is_decoding:  # and its slot is full
            member.error = self._lack_of_room(live, 1)
            return nothing, None
        feed = sequence.feed
        if feed is None:
            return nothing, None  # ended by itself before anything was fed
        member.error = self._lack_of_room(live, len(feed.rows))
        if member.error is not None:
            return nothing, None
        lines = self._records.feed_lines(slot, feed.rows)
        if isinstance(sequence, Unistream | Growing):
            self._begin_decoding(live, sequence)
            return lines, self._records.first_sample(slot)
        member.is_forced_fill = feed.is_forced_fill
        sample = self._records.bistream_sample(
            slot,
            num_decoded=len(sequence.decoded),
            ignore_eos=feed.ignore_eos,
            is_forced_fill=feed.is_forced_fill,
        )
        return lines, sample

    def _begin_decoding(self, live: Live, sequence: Unistream | Growing) -> None:
        """From the next sample on, which is its reading's first, it feeds the token that it drew."""
        slot = live.slot
        self._records.begin_decoding(slot, min_tokens=sequence.min_tokens)
        num_drawn = int(self._slots.num_drawn[slot])
        live.is_decoding = True
        live.num_to_take = sequence.max_tokens - num_drawn
        # The first of them comes of what is fed now; each other takes a position.
        live.num_to_launch = min(live.num_to_take - 1, self._max_positions - int(self._slots.lengths[slot]))

    def _send(self, step: CudaStep, lines: Words, samples: Words) -> None:
        """In as few passes as the largest buckets allow; a line's keys are stored before later lines ask for them."""
        if len(lines) <= self.buckets.max_lines:  # nearly always
            self._send_part(step, lines, samples)
            return
        first_line, first_sample = 0, 0
        while first_line < len(lines):
            end_line = min(first_line + self.buckets.max_lines, len(lines))
            end_sample = int(np.searchsorted(samples[:, 0], end_line))
            part = samples[first_sample:end_sample].copy()
            part[:, 0] -= first_line
            self._send_part(step, lines[first_line:end_line], part)
            first_line, first_sample = end_line, end_sample

    def _send_part(self, step: CudaStep, lines: Words, samples: Words) -> None:
        while not self._queue.has_idle:
            self._make_room(step)
        step.transfers.append(self._queue.send(lines, samples))

    def _make_room(self, step: CudaStep) -> None:
        """Wait for the oldest transfer of all, which may be the very step's that is being sent."""
        oldest = next(pending for pending in self._pending if pending.transfers)
        if oldest is step:
            self._collect(step, step.transfers.pop(0))
        else:
            self._apply_oldest()

    # --- results ----------------------------------------------------------------------------------------------

    def _outputs_of(self, step: CudaStep) -> list[SequenceOutput]:
        """Waits for the device if need be; those of earlier steps first."""
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
        """Outputs of sequences whose tokens are not held back."""
        outputs, members, num_decodes = [], step.members, 0
        for place, live in enumerate(step.lives):
            live.num_in_flight -= 1
            member = members.get(place)
            if member is None:
                token, num_decodes = tokens[num_decodes], num_decodes + 1
                if live.is_gone:
                    continue
                if not live.is_decoding:  # a step that was launched ahead of its reading's end
                    if not live.num_in_flight:
                        outputs.append(self._output(live))  # only now can it be read again
                elif self._is_told(live, token):
                    outputs.append(self._decode_output(live))
            elif not live.is_gone:
                outputs.append(self._member_output(live, member, tokens))
        return outputs

    def _is_told(self, live: Live, token: int) -> bool:
        """Take a token of one that is decoding: whether it is to be told of now, with those that were held back."""
        live.held.append(token)
        live.num_to_take -= 1
        is_enough = len(live.held) >= live.tell_after
        return is_enough or not live.num_to_take or token >= self._config.speech_token_size

    def _decode_output(self, live: Live) -> SequenceOutput:
        """Output of a unistream or growing sequence, with all that was held back of it."""
        is_ended = ends_speech(self._config, live.held[-1])
        emitted = self._give(live)
        if isinstance(live.sequence, Growing):
            output = self._output(live, emitted)
            if output.is_paused:
                live.is_decoding = False  # it is read anew
                if live.num_in_flight:  # the last of these steps tells the pause
                    return replace(output, is_paused=False, is_spent=False)
            return output
        is_truncated = not is_ended and not live.num_to_take
        if is_ended or is_truncated:
            self.abort(live.sequence_id)
        return SequenceOutput(live.sequence_id, emitted, is_final=is_ended or is_truncated, is_truncated=is_truncated)

    def _member_output(self, live: Live, member: Member, tokens: list[int]) -> SequenceOutput:
        if member.sample is None:
            return self._output(live, error=member.error)
        if member.is_forced_fill:
            return self._output(live, _speech(live.sequence.advance(None)))
        token = tokens[member.sample]
        if isinstance(live.sequence, Bistream):
            return self._output(live, _speech(live.sequence.advance(token)))
        self._is_told(live, token)  # a reading's first: at once, in any case
        return self._decode_output(live)


def _joined(parts: list[Words]) -> Words:
    """Behind one another; a single one, as nearly always, is not copied."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _speech(token: int | None) -> tuple[int, ...]:
    return () if token is None else (token,)


def _tiles_for(device: torch.device, dtype: torch.dtype) -> TileTable:
    room = max_shared_memory_bytes(device) if device.type == "cuda" else None
    return default_tiles(is_float32=dtype == torch.float32, shared_memory_bytes=room)
