"""Mel frames -> 24 kHz samples for many streams at once: slots, batches and what is final. The seam of the vocoder.

With T frames known and more to come, samples up to 480 (T - 4) - 4 are final and are given out; at the end, 480 T.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch.nn import functional

from voicegate.engine import units
from voicegate.engine.model.config import VocoderConfig
from voicegate.engine.token2wav.vocoder.errors import VocoderStreamEnded, VocoderStreamsExhausted, VocoderStreamTooLong
from voicegate.engine.token2wav.vocoder.excitation import project, upstream_excitation
from voicegate.engine.token2wav.vocoder.network import VocoderNetwork
from voicegate.engine.token2wav.vocoder.offline import OfflineVocoder
from voicegate.engine.token2wav.vocoder.state import BatchRows, SlotTable
from voicegate.engine.token2wav.vocoder.weights import load_vocoder_weights

# Rows of one padded call are at least this full. Lower -> fewer calls, more of each spent on padding.
MIN_ROW_FILL: Final = 0.75


@dataclass(slots=True, eq=False)
class VocoderStream:
    """One utterance's place in the vocoder, made by `VocoderRunner.open`."""

    slot: int | None  # None once closed
    num_lookahead: int = 0  # frames known, not advanced by: at most 4, kept by the runner
    num_frames: int = 0  # advanced by
    is_ended: bool = False


@dataclass(frozen=True, slots=True)
class VocoderJob:
    """The next mel frames of a stream: [80, n] float32. n may be 0."""

    stream: VocoderStream
    mel: torch.Tensor
    is_final: bool


@dataclass(frozen=True, slots=True)
class _Advance:
    """A job with frames to advance by. `mel` [n + 4, 80] begins with the stream's lookahead."""

    job_index: int
    job: VocoderJob
    mel: torch.Tensor
    num_frames: int


class VocoderRunner:
    def __init__(
        self,
        config: VocoderConfig,
        state_dict: Mapping[str, torch.Tensor],
        *,
        excitation: torch.Tensor | None = None,
        max_samples: int,
        max_streams: int,
        device: torch.device,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """`excitation` [at least max_samples, 9] takes the place of upstream's table. Raises WeightsError."""
        weights = load_vocoder_weights(config, state_dict, device=device)
        self._device = device
        self._look_right = config.look_right_frames
        # One more spectrum touches this many samples before the frames to advance by, so a call starts there and ends
        # that far from its own end.
        self._num_held_samples = config.stft_hop
        self._max_frames = max_samples // units.SAMPLES_PER_FRAME
        merge_weight = weights["m_source.l_linear.weight"][0].cpu()
        if excitation is not None and len(excitation) < max_samples:
            raise ValueError(f"the excitation table has {len(excitation)} rows for {max_samples} samples")
        blocks = upstream_excitation(max_samples) if excitation is None else iter((excitation[:max_samples],))
        # A frame more: a final call looks one frame past the end, where only mirrored samples are used.
        self._noise = functional.pad(project(blocks, merge_weight), (0, units.SAMPLES_PER_FRAME)).to(device)
        self._offline = OfflineVocoder(config, weights, self._noise)
        self._max_streams = max_streams
        self._free_slots = list(reversed(range(max_streams)))
        self._build(config, weights, dtype)

    def _build(self, config: VocoderConfig, weights: Mapping[str, torch.Tensor], dtype: torch.dtype) -> None:
        """What advances streams, and what it keeps of them; a device with an implementation of its own replaces it."""
        device = self._device
        self._network = VocoderNetwork(config, weights, dtype=dtype, device=device)
        self._state = SlotTable(self._network.layout, self._max_streams, dtype=torch.float32, device=device)
        self._exact_state = SlotTable(self._network.exact_layout, self._max_streams, dtype=torch.float64, device=device)
        self._lookaheads = [torch.zeros(0, units.NUM_MELS, device=device) for _ in range(self._max_streams)]

    @property
    def num_launches(self) -> int:
        """CUDA graphs launched so far; 0 where there are none."""
        return 0

    # --- streams ------------------------------------------------------------------------------------------

    def open(self) -> VocoderStream:
        """A stream at its start. Raises VocoderStreamsExhausted."""
        if not self._free_slots:
            raise VocoderStreamsExhausted(f"all {self._max_streams} vocoder streams are open")
        slot = self._free_slots.pop()
        self._reset(slot)
        return VocoderStream(slot)

    def _reset(self, slot: int) -> None:
        self._state.reset(slot)
        self._exact_state.reset(slot)
        self._lookaheads[slot] = self._lookaheads[slot][:0]

    def close(self, stream: VocoderStream) -> None:
        """Give the slot back; whatever was still to come is dropped. Idempotent."""
        if stream.slot is not None:
            self._free_slots.append(stream.slot)
            stream.slot = None

    @torch.inference_mode()
    def run(self, jobs: Sequence[VocoderJob]) -> list[torch.Tensor]:
        """The samples that these frames make final, [m] float32 for each job; at most one job a stream.

        Raises VocoderStreamTooLong or VocoderStreamEnded before anything is computed.
        """
        self._check(jobs)
        return self._run_checked(jobs)

    def _run_checked(self, jobs: Sequence[VocoderJob]) -> list[torch.Tensor]:
        samples = [torch.zeros(0, device=self._device) for _ in jobs]
        advances: list[_Advance] = []
        for index, job in enumerate(jobs):
            known = torch.cat((self._lookaheads[_slot(job.stream)], job.mel.T.to(self._device)))
            if job.is_final and len(known):
                known = functional.pad(known, (0, 0, 0, self._look_right))  # upstream's right context at the end
            num_frames = len(known) - self._look_right
            if num_frames > 0:
                advances.append(_Advance(index, job, known, num_frames))
            else:
                self._keep_lookahead(job.stream, known)
                job.stream.is_ended = job.is_final
        for batch in _batches(advances):
            for advance, pcm in zip(batch, self._run_batch(batch), strict=True):
                samples[advance.job_index] = pcm
        return samples

    def _check(self, jobs: Sequence[VocoderJob]) -> None:
        if len({id(job.stream) for job in jobs}) != len(jobs):
            raise ValueError("a stream may have one job in a call: its frames come in order")
        for job in jobs:
            stream = job.stream
            if stream.slot is None or stream.is_ended:
                raise VocoderStreamEnded("this vocoder stream is closed or has had its final frames")
            if job.mel.shape[0] != units.NUM_MELS or job.mel.dim() != 2:
                raise ValueError(f"mel is {list(job.mel.shape)}, not [{units.NUM_MELS}, frames]")
            self._check_length(stream.num_frames + stream.num_lookahead + job.mel.shape[1])

    def _check_length(self, num_frames: int) -> None:
        if num_frames > self._max_frames:
            raise VocoderStreamTooLong(
                f"{num_frames} mel frames in one stream; the vocoder was built for {self._max_frames}"
            )

    def _run_batch(self, batch: Sequence[_Advance]) -> list[torch.Tensor]:
        streams = [advance.job.stream for advance in batch]
        slots = torch.tensor([stream.slot for stream in streams], device=self._device)
        longest = batch[0].num_frames
        mel = torch.zeros(len(batch), longest + self._look_right, units.NUM_MELS, device=self._device)
        for row, advance in zip(mel, batch, strict=True):
            row[: len(advance.mel)] = advance.mel
        state, exact_state = self._state.gather(slots), self._exact_state.gather(slots)
        samples = self._network.advance(
            mel,
            self._noise_rows([stream.num_frames for stream in streams], longest),
            {**self._state.tails(state), **self._exact_state.tails(exact_state)},
            self._batch_rows(batch),
        )
        self._state.scatter(slots, state)
        self._exact_state.scatter(slots, exact_state)
        return [self._finish(advance, row) for advance, row in zip(batch, samples, strict=True)]

    def _batch_rows(self, batch: Sequence[_Advance]) -> BatchRows:
        frames = [advance.num_frames for advance in batch]
        return BatchRows(
            frames=torch.tensor(frames, device=self._device),
            is_first=torch.tensor([advance.job.stream.num_frames == 0 for advance in batch], device=self._device),
            is_final=torch.tensor([advance.job.is_final for advance in batch], device=self._device),
            uniform_frames=frames[0] if frames[0] == frames[-1] else None,
        )

    def _noise_rows(self, start_frames: Sequence[int], num_frames: int) -> torch.Tensor:
        """[B, 480 (n + 1)]: the noise of the frames to advance by and of the one after."""
        starts = torch.tensor(start_frames, device=self._device) * units.SAMPLES_PER_FRAME
        columns = torch.arange((num_frames + 1) * units.SAMPLES_PER_FRAME, device=self._device)
        # A row that is padded may run past the table's end; what it finds there is garbage anyway.
        return self._noise[(starts[:, None] + columns).clamp_(max=len(self._noise) - 1)]

    def _finish(self, advance: _Advance, samples: torch.Tensor) -> torch.Tensor:
        """Move the stream on; of its row [480 n + 4], the part that belongs to the signal and is final."""
        stream = advance.job.stream
        is_first = stream.num_frames == 0
        stream.num_frames += advance.num_frames
        self._keep_lookahead(stream, advance.mel[advance.num_frames :].clone())
        stream.is_ended = advance.job.is_final
        held = self._num_held_samples
        end = advance.num_frames * units.SAMPLES_PER_FRAME + (held if advance.job.is_final else 0)
        return samples[held if is_first else 0 : end]

    def _keep_lookahead(self, stream: VocoderStream, frames: torch.Tensor) -> None:
        """frames [at most 4, 80]"""
        self._lookaheads[_slot(stream)] = frames
        stream.num_lookahead = len(frames)

    # --- the yardstick ------------------------------------------------------------------------------------

    @torch.inference_mode()
    def render_offline(self, mel: torch.Tensor, *, is_final: bool) -> torch.Tensor:
        """mel [80, T] -> the samples that upstream's vocoder gives for it: [480 T], not final [480 (T - 8)].

        Raises VocoderStreamTooLong.
        """
        self._check_length(mel.shape[1])
        return self._offline.render(mel.to(self._device), is_final=is_final)

    @property
    def offline(self) -> OfflineVocoder:
        """The parts of `render_offline`, for comparing what lies between."""
        return self._offline


def _slot(stream: VocoderStream) -> int:
    if stream.slot is None:
        raise VocoderStreamEnded("this vocoder stream is closed")
    return stream.slot


def _batches(advances: Sequence[_Advance]) -> list[list[_Advance]]:
    """Grouped by length, the longest first in each, so that little of a call is padding."""
    batches: list[list[_Advance]] = []
    for advance in sorted(advances, key=lambda each: each.num_frames, reverse=True):
        if batches and advance.num_frames >= MIN_ROW_FILL * batches[-1][0].num_frames:
            batches[-1].append(advance)
        else:
            batches.append([advance])
    return batches
