"""The vocoder with TensorRT on a CUDA device: engines are built, checked, kept, and run through the seam in graphs."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from tests.support import golden
from tests.support.tiny_engine import CONFIG
from tests.support.vocoder import feed_together, plain_runner
from voicegate.engine import units
from voicegate.engine.backends.tensorrt.addition import ADDITION
from voicegate.engine.backends.tensorrt.build import build_engines
from voicegate.engine.backends.tensorrt.recipes import VocoderRecipe
from voicegate.engine.backends.tensorrt.vocoder.filter import TensorrtFilter
from voicegate.engine.backends.tensorrt.vocoder.trial import call_ms
from voicegate.engine.interface import EngineError
from voicegate.engine.load.progress import Lines
from voicegate.engine.model.model_json import load_model_config
from voicegate.engine.model.weights import load_state_dict
from voicegate.engine.vocoder.cuda.config import VocoderCudaConfig
from voicegate.engine.vocoder.cuda.renderer import CudaRenderer
from voicegate.engine.vocoder.model import VocoderModel
from voicegate.engine.vocoder.runner import VocoderRunner

pytest.importorskip("tensorrt", exc_type=ImportError)
pytest.importorskip("onnx", exc_type=ImportError)

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]

CUDA, CPU = torch.device("cuda"), torch.device("cpu")
NUM_FRAMES = 50
NUM_STREAMS = 3
BUCKETS = VocoderCudaConfig(batch_buckets=(1, 2), frame_buckets=(8, 20))
MODEL = load_model_config(golden.TINY_MODEL_DIR)
MEL = torch.randn(NUM_STREAMS, units.NUM_MELS, NUM_FRAMES, generator=torch.Generator().manual_seed(4))
# RMS of the samples against the CPU's float32, relative: of float16 docs/adr/0014 has 0.9 %.
TOLERANCES = {"float32": 1e-3, "tf32": 3e-2, "float16": 3e-2}


def vocoder(device: torch.device) -> VocoderModel:
    state = load_state_dict(golden.TINY_MODEL_DIR / "vocoder.safetensors")
    return VocoderModel(MODEL.vocoder, state, max_samples=NUM_FRAMES * units.SAMPLES_PER_FRAME, device=device)


def feed(runner: VocoderRunner, plans: Sequence[Sequence[int]], device: torch.device) -> list[torch.Tensor]:
    chunks = [torch.split(MEL[index, :, : sum(plan)].to(device), list(plan), dim=1) for index, plan in enumerate(plans)]
    return [torch.cat(parts).cpu() for parts in feed_together(runner, chunks)]


@pytest.mark.parametrize("precision", TOLERANCES)
@pytest.mark.parametrize("has_graphs", [True, False])
def test_engines_are_built_kept_and_sound_like_the_cpu(tmp_path: Path, precision: str, has_graphs: bool) -> None:
    config = replace(CONFIG, device="cuda", tensorrt_dir=tmp_path, vocoder_precision=precision)
    cuda = replace(BUCKETS, precision=precision, has_graphs=has_graphs)
    recipe = VocoderRecipe(config, MODEL, cuda)
    assert build_engines(config, Lines(print), recipes=[recipe]).num_built == 4
    assert build_engines(config, Lines(print), recipes=[recipe]).num_kept == 4
    engines = recipe.wanted.find(config, CUDA).load(CUDA)
    stream = torch.cuda.Stream(CUDA)  # type: ignore[no-untyped-call]
    renderer = CudaRenderer(
        vocoder(CUDA),
        cuda,
        max_streams=NUM_STREAMS,
        stream=stream,
        filter_of=partial(TensorrtFilter, MODEL.vocoder, engines, max_streams=NUM_STREAMS),
        name="tensorrt",
    )
    renderer.graphs.capture()
    renderer.network.state.fill_(-1)  # NaN, whatever the type
    runner = VocoderRunner(vocoder(CUDA), renderer, max_streams=NUM_STREAMS)
    reference = plain_runner(vocoder(CPU), max_streams=NUM_STREAMS)
    with torch.cuda.stream(stream):
        for plans in ([[20, 1, 9], [2, 30, 0], [3]], [[50], [8, 8]]):
            found = feed(runner, plans, CUDA)
            for samples, wanted in zip(found, feed(reference, plans, CPU), strict=True):
                error = float((samples - wanted).norm() / wanted.norm())
                print(f"{precision}: {error:.1e}")
                assert error < TOLERANCES[precision]
    times = call_ms(renderer, list(engines))
    print({bucket: round(ms, 3) for bucket, ms in zip(engines, times, strict=True)})
    assert all(ms > 0 for ms in times)


def test_what_is_stale_is_told(tmp_path: Path) -> None:
    config = replace(CONFIG, device="cuda", tensorrt_dir=tmp_path)
    cuda = replace(BUCKETS, batch_buckets=(1,), frame_buckets=(8,))
    build_engines(config, Lines(print), recipes=[VocoderRecipe(config, MODEL, cuda)])
    with pytest.raises(EngineError, match="lacks 23 engines"):
        ADDITION.usable("vocoder", config, MODEL, CUDA)
    with pytest.raises(EngineError, match="precision float16 then, tf32 now"):
        ADDITION.usable("vocoder", replace(config, vocoder_precision="tf32"), MODEL, CUDA)
