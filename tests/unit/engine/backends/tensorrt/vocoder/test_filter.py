"""The CUDA vocoder with TensorRT's filter equals the CPU's layers, with the golden weights, through the seam.

The package is a stand-in that computes with onnxruntime; the kernels around it run in Triton's interpreter.
"""

from functools import cache, partial
from pathlib import Path

import pytest
import torch

from tests.support.tensorrt.computing import computing_package
from tests.support.tensorrt.package import VERSIONS
from tests.support.vocoder import chunks_of, feed_together, golden_model, plain_runner
from voicegate.engine import units
from voicegate.engine.backends.tensorrt import graph
from voicegate.engine.backends.tensorrt.library import LoadedEngine, TensorrtError, build_plan
from voicegate.engine.backends.tensorrt.vocoder.filter import TensorrtFilter
from voicegate.engine.backends.tensorrt.vocoder.filter_graph import filter_model
from voicegate.engine.backends.tensorrt.vocoder.shape import FilterShape
from voicegate.engine.vocoder.cuda.config import VocoderCudaConfig
from voicegate.engine.vocoder.cuda.renderer import CudaRenderer
from voicegate.engine.vocoder.model import VocoderModel
from voicegate.engine.vocoder.runner import VocoderRunner

CPU = torch.device("cpu")
MAX_FRAMES = 3
NUM_STREAMS = 2
BUCKETS = {"batch_buckets": (1, 2), "frame_buckets": (1, 2)}
MEL = torch.randn(NUM_STREAMS, units.NUM_MELS, MAX_FRAMES, generator=torch.Generator().manual_seed(4))
# Difference of a sample, of audio up to 0.99. The lower precisions' kernels do not run in the interpreter:
# test_filter_graph.py.
TOLERANCE = 2e-4


@cache
def model() -> VocoderModel:
    return golden_model(MAX_FRAMES * units.SAMPLES_PER_FRAME)


def renderer(directory: Path) -> CudaRenderer:
    package = computing_package(VERSIONS[-1])
    engines = {}
    for num_rows in BUCKETS["batch_buckets"]:
        for num_frames in BUCKETS["frame_buckets"]:
            shape = FilterShape(num_rows, num_frames, mel_channels=128, spectrum_channels=32)
            path = directory / f"{shape.name}.onnx"
            graph.save(filter_model(model().config, model().weights, shape, low="float32"), path)
            engines[num_rows, num_frames] = LoadedEngine(package, build_plan(package, path), CPU)
    made = CudaRenderer(
        model(),
        VocoderCudaConfig(precision="float32", has_graphs=False, **BUCKETS),
        max_streams=NUM_STREAMS,
        filter_of=partial(TensorrtFilter, model().config, engines, max_streams=NUM_STREAMS),
        name="tensorrt",
    )
    forget(made)
    return made


def forget(made: CudaRenderer) -> None:
    """NaN in every type: what is not written must not be read."""
    made.network.state.fill_(-1)
    for kept in kept_by(made).values():
        kept.fill_(torch.nan)


def kept_by(made: CudaRenderer) -> dict[str, torch.Tensor]:
    assert isinstance(made.network.filter, TensorrtFilter)
    return made.network.filter.kept


def test_streams_of_any_age_in_one_batch(tmp_path: Path) -> None:
    """First, later and last calls, one that waits for its lookahead, one over several calls; slots are used again."""
    made = renderer(tmp_path)
    runner = VocoderRunner(model(), made, max_streams=NUM_STREAMS)
    reference = plain_runner(model(), max_streams=NUM_STREAMS)
    for plans in ([[2, 1], [1, 0]], [[1]]):
        chunks = chunks_of(MEL, plans)
        pairs = zip(feed_together(runner, chunks), feed_together(reference, chunks), strict=True)
        for samples, wanted in ((torch.cat(ours), torch.cat(theirs)) for ours, theirs in pairs):
            assert samples.shape == wanted.shape
            assert torch.allclose(samples, wanted, atol=TOLERANCE, rtol=0)
    assert runner.name == "tensorrt"


def test_a_trial_is_nobodys_and_a_bucket_needs_an_engine(tmp_path: Path) -> None:
    made = renderer(tmp_path)
    kept = kept_by(made)["state"]
    made.network.state.zero_()
    kept.zero_()
    made.trial([(1, 1)]).compile()
    assert kept[NUM_STREAMS].any(), "every row computes"
    assert not kept[:NUM_STREAMS].any()
    assert not made.network.state[:NUM_STREAMS].any()
    with pytest.raises(TensorrtError, match="no engine for 2 streams and 3 frames"):
        made.network.workspace(2, 3)
