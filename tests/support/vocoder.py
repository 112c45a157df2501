"""The vocoder with the golden weights, streamed and over a whole sequence at once."""

from collections.abc import Iterable, Sequence
from functools import cache

import numpy as np
import torch

from tests.support import golden
from voicegate.engine.model.config import VocoderConfig
from voicegate.engine.vocoder.backend import VocoderJob
from voicegate.engine.vocoder.model import VocoderModel
from voicegate.engine.vocoder.runner import VocoderRunner
from voicegate.engine.vocoder.torch.offline import OfflineVocoder
from voicegate.engine.vocoder.torch.renderer import TorchRenderer

CPU = torch.device("cpu")
# Every kind of layer, and few taps: the interpreter takes a millisecond for each step of a product.
SMALL_VOCODER = VocoderConfig(
    base_channels=16,
    f0_channels=8,
    num_harmonics=8,
    sine_amplitude=0.1,
    noise_std=0.003,
    voiced_threshold_hz=10,
    upsample_rates=(8, 15),
    upsample_kernels=(16, 31),
    stft_size=16,
    stft_hop=4,
    resblock_kernels=(2, 3),
    resblock_dilations=((3,), (3,)),
    source_resblock_kernels=(2, 2),
    source_resblock_dilations=((2,), (1, 2)),
    leaky_relu_slope=0.1,
    audio_limit=0.99,
    look_right_frames=4,
)


def golden_excitation(num_rows: int) -> torch.Tensor:
    return torch.from_numpy(golden.name_keyed_generator("hift.sine_waves").random((num_rows, 9), dtype=np.float32))


def golden_model(num_samples: int, *, device: torch.device = CPU) -> VocoderModel:
    return VocoderModel(
        golden.golden_vocoder_config(),
        golden.golden_state_dict("hift"),
        max_samples=num_samples,
        device=device,
        excitation=golden_excitation(num_samples),
    )


def plain_runner(model: VocoderModel, *, max_streams: int = 1, dtype: torch.dtype = torch.float32) -> VocoderRunner:
    return VocoderRunner(model, TorchRenderer(model, max_streams=max_streams, dtype=dtype), max_streams=max_streams)


@cache
def offline_vocoder(model: VocoderModel) -> OfflineVocoder:
    return OfflineVocoder(model)


def offline(runner: VocoderRunner, mel: torch.Tensor, *, is_final: bool) -> torch.Tensor:
    """Upstream's vocoder for mel [80, T], with a runner's weights: [480 T], not final [480 (T - 8)]."""
    return offline_vocoder(runner.model).render(mel, is_final=is_final)


def chunks_of(mels: Iterable[torch.Tensor], plans: Sequence[Sequence[int]]) -> list[Sequence[torch.Tensor]]:
    """The beginning of each mel [80, T], cut into as many frames as its plan has for each call."""
    return [torch.split(mel[:, : sum(plan)], list(plan), dim=1) for mel, plan in zip(mels, plans, strict=False)]


def feed_together(runner: VocoderRunner, chunks: Sequence[Sequence[torch.Tensor]]) -> list[list[torch.Tensor]]:
    """Call number i takes chunk number i, mel [80, n], of each stream that has one; streams leave when they end.

    Returns each call's samples, by stream.
    """
    streams = [runner.open() for _ in chunks]
    outputs: list[list[torch.Tensor]] = [[] for _ in chunks]
    for number in range(max(map(len, chunks))):
        members = [index for index, own in enumerate(chunks) if number < len(own)]
        jobs = [
            VocoderJob(streams[index], chunks[index][number], is_final=number == len(chunks[index]) - 1)
            for index in members
        ]
        for index, job, samples in zip(members, jobs, runner.run(jobs), strict=True):
            outputs[index].append(samples)
            if job.is_final:
                runner.close(streams[index])
    return outputs
