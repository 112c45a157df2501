"""Mel frames and spectra -> samples by the first family's kernels, whose convolutions look both ways here.

They have what those do: half precision, and bias, residual and Snake within the convolution. Rows are right-padded; a
layer finds zeros on either side of a row's own columns, which a call puts there before all else.
"""

from collections.abc import Mapping

import torch
import triton

from voicegate.engine import units
from voicegate.engine.families.stepaudio2.vocoder.bucket_caller import CallConfig
from voicegate.engine.families.stepaudio2.vocoder.cuda.packing import CentredPacker
from voicegate.engine.families.stepaudio2.vocoder.model import StepAudio2Vocoder
from voicegate.engine.families.stepaudio2.vocoder.network import RowLengths
from voicegate.engine.model.config import VocoderConfig
from voicegate.engine.vocoder.cuda import rows as row_fields
from voicegate.engine.vocoder.cuda.buffers import BufferSpec, Memory, Workspace
from voicegate.engine.vocoder.cuda.config import PRECISIONS, VocoderCudaConfig
from voicegate.engine.vocoder.cuda.kernel_filter import KernelFilter
from voicegate.engine.vocoder.cuda.network import SPECTRUM_COLUMNS
from voicegate.engine.vocoder.cuda.renderer import check_config
from voicegate.engine.vocoder.cuda.spectrum_kernels import synthesis_kernel
from voicegate.engine.vocoder.cuda.state_kernels import WORDS_PER_PIECE, zero_edges_kernel
from voicegate.engine.vocoder.stft import Synthesis
from voicegate.engine.vocoder.weights import source_stride


def kernel_decoder(
    model: StepAudio2Vocoder, calls: CallConfig, precision: str, *, num_multiprocessors: int
) -> "KernelDecoder":
    """For calls in these buckets. Raises WeightsError, ValueError."""
    cuda = VocoderCudaConfig(
        precision=precision,
        batch_buckets=calls.row_buckets,
        frame_buckets=calls.frame_buckets,
        num_multiprocessors=num_multiprocessors,
    )
    return KernelDecoder(model.config, model.weights, cuda, device=model.device)


class KernelDecoder:
    """Implements Decode."""

    def __init__(
        self,
        config: VocoderConfig,
        weights: Mapping[str, torch.Tensor],
        cuda: VocoderCudaConfig,
        *,
        device: torch.device,
    ) -> None:
        """Raises WeightsError for a model that the kernels cannot run."""
        check_config(config)
        self._config = config
        self._precision = PRECISIONS[cuda.precision]
        packer = CentredPacker(weights, self._precision)
        self._mel_channels = packer.channels(units.NUM_MELS)
        self._spectrum_channels = packer.channels(config.stft_size + 2)
        (self._mel_margin,) = packer.conv(["conv_pre"]).margins
        self._spectra_margin = packer.columns_before(source_stride(config, 0))
        self._spectra_per_frame = units.SAMPLES_PER_FRAME // config.stft_hop
        synthesis = Synthesis(config, device=device)
        self._synthesis_basis = synthesis.block_bases()
        self._end_gains = synthesis.end_gains()
        self._frames_margin = synthesis.num_tail_frames
        self._rows = torch.zeros(cuda.max_batch, row_fields.NUM_FIELDS, dtype=torch.int64, device=device)
        self._rows[:, [row_fields.FIRST_FIELD, row_fields.FINAL_FIELD]] = 1  # each call's rows are signals of their own
        self._filter = KernelFilter(config, weights, cuda, self._rows, packer=packer)
        self._memory = Memory(
            self._specs(), max_streams=0, max_batch=cuda.max_batch, max_frames=cuda.max_frames, device=device
        )
        num_samples = cuda.max_frames * units.SAMPLES_PER_FRAME + config.stft_hop
        self._samples = torch.zeros(cuda.max_batch * num_samples, device=device)
        self._buckets = {
            (num_rows, num_frames): (
                self._memory.workspace(num_rows, num_frames),
                self._memory.edges(num_rows, num_frames),
            )
            for num_rows in cuda.batch_buckets
            for num_frames in cuda.frame_buckets
        }

    def _specs(self) -> list[BufferSpec]:
        dtype, rate = self._precision.dtype, self._spectra_per_frame
        ahead, before = self._mel_margin, self._spectra_margin
        return [
            BufferSpec("mel", self._mel_channels, dtype, 1, 0, ahead, num_ahead=ahead),
            BufferSpec("spectra", self._spectrum_channels, dtype, rate, 1, before, num_ahead=before),
            *self._filter.specs,
            BufferSpec("frames", self._spectrum_channels, torch.float32, rate, 1, self._frames_margin),
        ]

    @property
    def arena(self) -> torch.Tensor:
        """All buffers, as int32 words."""
        return self._memory.arena

    def __call__(self, mel: torch.Tensor, spectra: torch.Tensor, lengths: RowLengths) -> torch.Tensor:
        """Samples [B, 480 T], whose memory is the next call's too; B and T are a bucket's."""
        num_rows, _, num_frames = mel.shape
        space, edges = self._buckets[num_rows, num_frames]
        self._rows[:num_rows, row_fields.FRAMES_FIELD].copy_(lengths.frames)
        zero_edges_kernel[(len(edges), num_rows)](
            self._memory.arena, edges, self._rows, BLOCK_WORDS=WORDS_PER_PIECE, num_warps=4
        )
        _fill(space.views["mel"], (mel * lengths.mask(1)).mT, self._mel_margin)
        self._filter.begin(space)
        _fill(space.views["spectra"], spectra.mT, self._spectra_margin)
        self._filter.finish(space)
        return self._synthesise(space)

    def _synthesise(self, space: Workspace) -> torch.Tensor:
        frames, hop = space.views["frames"], self._config.stft_hop
        num_rows, num_samples = space.num_streams, space.num_frames * units.SAMPLES_PER_FRAME
        samples = self._samples[: num_rows * (num_samples + hop)].view(num_rows, -1)
        num_tiles = triton.cdiv(space.num_frames * self._spectra_per_frame + 1, SPECTRUM_COLUMNS)
        synthesis_kernel[(num_tiles, num_rows)](
            frames,
            self._synthesis_basis,
            self._end_gains,
            samples,
            self._rows,
            frames.stride(1),
            samples.stride(0),
            self._spectra_per_frame,
            self._config.audio_limit,
            CHANNELS=self._spectrum_channels,
            NUM_BINS=self._config.stft_size // 2 + 1,
            BLOCK_M=SPECTRUM_COLUMNS,
            IS_FAST=self._precision.has_fast_sine,
            num_warps=4,
        )
        return samples[:, hop:]  # those before belong to no signal


def _fill(view: torch.Tensor, x: torch.Tensor, margin: int) -> None:
    """x [B, n, channels] into a buffer [1, B, margin + n + ahead, padded channels]."""
    own = view[0, :, margin : margin + x.shape[1]]
    own[:, :, : x.shape[2]].copy_(x)
    view[0, :, :, x.shape[2] :].zero_()
