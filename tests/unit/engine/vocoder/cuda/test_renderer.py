"""The CUDA vocoder by Triton's interpreter equals the CPU's layers: any history, any others, any slot."""

import math
from dataclasses import replace

import pytest
import torch

from tests.support import golden
from tests.support.vocoder import SMALL_VOCODER, chunks_of, feed_together, plain_runner
from voicegate.engine import units
from voicegate.engine.model.weights import WeightsError
from voicegate.engine.vocoder.backend import VocoderJob
from voicegate.engine.vocoder.cuda.config import Tile, VocoderCudaConfig
from voicegate.engine.vocoder.cuda.renderer import CudaRenderer, check_config
from voicegate.engine.vocoder.model import VocoderModel
from voicegate.engine.vocoder.runner import VocoderRunner
from voicegate.engine.vocoder.weights import vocoder_shapes

CPU = torch.device("cpu")
EAGER = VocoderCudaConfig(
    precision="float32",
    batch_buckets=(1, 2),
    frame_buckets=(2, 5),
    has_graphs=False,
    # Large ones, the slower the interpreter is the more there are; cut in four and in two at the end.
    tiles=(Tile(1024, 128, 4, 2, 0.0, num_slices=4), Tile(1024, 32, 4, 2, 1.0, num_slices=2)),
)
MAX_FRAMES = 7
TOLERANCE = 1e-5


def state_dict() -> dict[str, torch.Tensor]:
    scale = {"f0_predictor.classifier.weight": 150.0, "conv_post.parametrizations.weight.original0": 0.1}
    return {
        name: torch.from_numpy(
            golden.weight(name, shape, scale=scale.get(name, 1.0), shift=-1.5 if name == "conv_post.bias" else 0.0)
        )
        for name, shape in vocoder_shapes(SMALL_VOCODER).items()
    }


NUM_SAMPLES = MAX_FRAMES * units.SAMPLES_PER_FRAME
EXCITATION = torch.rand(NUM_SAMPLES, 9, generator=torch.Generator().manual_seed(3))
MEL = torch.randn(2, units.NUM_MELS, MAX_FRAMES, generator=torch.Generator().manual_seed(4))


@pytest.fixture(scope="module")
def model() -> VocoderModel:
    return VocoderModel(SMALL_VOCODER, state_dict(), max_samples=NUM_SAMPLES, device=CPU, excitation=EXCITATION)


@pytest.fixture(scope="module")
def reference(model: VocoderModel) -> VocoderRunner:
    return plain_runner(model, max_streams=2)


@pytest.fixture(scope="module")
def renderer(model: VocoderModel) -> CudaRenderer:
    renderer = CudaRenderer(model, EAGER, max_streams=2)
    renderer.network.state.fill_(-1)  # NaN in every type: what is not written must not be read
    return renderer


@pytest.fixture(scope="module")
def runner(model: VocoderModel, renderer: CudaRenderer) -> VocoderRunner:
    return VocoderRunner(model, renderer, max_streams=2)


def test_first_later_last_and_waiting_in_one_batch(runner: VocoderRunner, reference: VocoderRunner) -> None:
    plans = [[6, 1], [2, 0]]
    expected = feed_together(reference, chunks_of(MEL, plans))
    for samples, wanted in zip(feed_together(runner, chunks_of(MEL, plans)), expected, strict=True):
        assert [len(each) for each in samples] == [len(each) for each in wanted]
        assert torch.allclose(torch.cat(samples), torch.cat(wanted), atol=TOLERANCE, rtol=0)


def test_a_slot_full_of_nan_is_a_fresh_one(
    renderer: CudaRenderer, runner: VocoderRunner, reference: VocoderRunner
) -> None:
    (expected,) = feed_together(reference, chunks_of(MEL, [[1]]))
    runner.close(runner.open())
    renderer.network.state.fill_(-1)
    (samples,) = feed_together(runner, chunks_of(MEL, [[1]]))
    assert torch.allclose(samples[0], expected[0], atol=TOLERANCE, rtol=0)


def test_a_long_job_takes_several_calls_and_mel_may_be_strided(runner: VocoderRunner, reference: VocoderRunner) -> None:
    (expected,) = feed_together(reference, chunks_of(MEL, [[7]]))
    stream = runner.open()
    by_frame = MEL[0, :, :7].T.contiguous().T
    (samples,) = runner.run([VocoderJob(stream, by_frame, is_final=True)])
    runner.close(stream)
    assert torch.allclose(samples, expected[0], atol=TOLERANCE, rtol=0)


def test_every_bucket_runs_on_padding_alone(model: VocoderModel) -> None:
    cuda = VocoderCudaConfig(precision="float16", batch_buckets=(1,), frame_buckets=(1,), has_graphs=False)
    renderer = CudaRenderer(model, cuda, max_streams=2)
    steps: list[None] = []
    renderer.graphs.compile(lambda: steps.append(None))
    assert len(steps) == renderer.graphs.num_buckets == 1
    renderer.graphs.capture()
    assert renderer.graphs.num_graphs == 0
    assert math.isfinite(renderer.network.state.view(torch.float16).abs().amax().item())


def test_blocks_that_the_kernels_cannot_join_are_refused() -> None:
    uneven = replace(SMALL_VOCODER, resblock_dilations=((3,), (5,)))
    with pytest.raises(WeightsError, match="same dilations"):
        check_config(uneven)
