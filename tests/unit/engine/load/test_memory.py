"""Memory that a model takes of a GPU, by formula: as an H200 was measured to hold it; and refused before it is
loaded."""

from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from structlog.testing import capture_logs

from tests.support.golden import TINY_MODEL_DIR
from tests.support.tiny_engine import CONFIG
from tests.unit.engine.load.test_runners import gpu_lanes
from voicegate.bench.full_size.source import Sizes, model_config
from voicegate.engine.config import EngineConfig, Gpu
from voicegate.engine.core.stages import VoiceRoom
from voicegate.engine.interface import EngineError
from voicegate.engine.load import build
from voicegate.engine.load.memory import (
    GIB,
    PROCESS_BYTES,
    check_room,
    gpu_memory,
    spare_room,
    with_layouts_that_fit,
)
from voicegate.engine.model.model_json import load_model_config
from voicegate.engine.text.tokenizer import TextTokenizer
from voicegate.engine.vocoder.cuda.config import VocoderCudaConfig
from voicegate.engine.vocoder.cuda.renderer import CudaRenderer
from voicegate.engine.vocoder.model import VocoderModel
from voicegate.engine.vocoder.weights import vocoder_shapes

RELEASED = model_config(Sizes())
H200_BYTES = int(139.801 * GIB)
# bench/results/engine-h200.json: one voice of 5 s, and room for two more.
MEASURED_ROOM = VoiceRoom((125, 250, 250))


def resolved(memory_bytes: int, **settings: object) -> EngineConfig:
    return replace(EngineConfig(Path("model")), **settings).resolved("cuda", Gpu(memory_bytes, 132))  # type: ignore[arg-type]


def test_an_h200_holds_what_it_was_measured_to_hold() -> None:
    memory = gpu_memory(resolved(H200_BYTES, kv_dtype="bfloat16"), RELEASED, MEASURED_ROOM)
    assert memory.block_bytes >> 20 == 88
    assert memory.num_blocks_in(H200_BYTES - PROCESS_BYTES) == pytest.approx(1384, rel=0.003)
    assert memory.num_weights == pytest.approx(859_185_455, rel=0.001)  # bench/results/full-size-cuda.json
    half = gpu_memory(resolved(H200_BYTES, kv_dtype="float8"), RELEASED, MEASURED_ROOM)
    assert half.num_blocks_in(H200_BYTES - PROCESS_BYTES) > 1.9 * memory.num_blocks_in(H200_BYTES - PROCESS_BYTES)


def test_the_vocoders_share_is_what_it_lays_out() -> None:
    """For a call of one stream, not of the 32 that it has room for: the buffers of 32 are 2 GB."""
    config, num_streams = RELEASED.vocoder, 16
    state = {name: torch.ones(shape) for name, shape in vocoder_shapes(config).items()}
    model = VocoderModel(config, state, max_samples=960, device=torch.device("cpu"))
    cuda = VocoderCudaConfig(batch_buckets=(1,), has_graphs=False)
    network = CudaRenderer(model, cuda, max_streams=num_streams).network
    memory = gpu_memory(resolved(H200_BYTES, max_active_clauses=num_streams), RELEASED, MEASURED_ROOM)
    weight_bytes = 4 * sum(tensor.numel() for tensor in state.values())
    slack_bytes = 4 << 20  # behind the buffers of any call
    (state_bytes, buffer_bytes) = network.state.nbytes, network.num_bytes - network.state.nbytes - slack_bytes
    laid_out = state_bytes + 32 * buffer_bytes + slack_bytes
    assert memory.vocoder_bytes - weight_bytes == pytest.approx(laid_out, rel=0.005)


def test_it_follows_the_configuration() -> None:
    model = load_model_config(TINY_MODEL_DIR)
    config = replace(CONFIG, max_active_clauses=8)
    room = spare_room(config)
    wanted = gpu_memory(config, model, room).least_bytes
    assert gpu_memory(replace(config, max_active_clauses=16), model, room).least_bytes > wanted
    assert gpu_memory(replace(config, kv_dtype="float8"), model, room).least_bytes < wanted
    assert gpu_memory(replace(config, precision="float32"), model, room).least_bytes > wanted
    assert gpu_memory(config, model, VoiceRoom((*room.prompt_tokens, 250))).least_bytes > wanted


@pytest.mark.parametrize("gib", [22.0, 44.4, 79.2])
def test_the_defaults_fit_on_cards_of_24_gb_and_more(gib: float) -> None:
    free_bytes = int(gib * GIB)
    config = resolved(free_bytes)
    memory = gpu_memory(config, RELEASED, spare_room(config))
    check_room(memory, config, free_bytes - PROCESS_BYTES)
    assert memory.num_blocks_in(free_bytes - PROCESS_BYTES) >= memory.voice_blocks + memory.clause_blocks


def test_what_does_not_fit_is_told_with_its_parts_and_remedies() -> None:
    config = resolved(16 * GIB, max_active_clauses=256, kv_dtype="bfloat16")
    memory = gpu_memory(config, RELEASED, spare_room(config))
    with pytest.raises(EngineError) as caught:
        check_room(memory, config, memory.least_bytes - GIB)
    text = str(caught.value)
    assert "the LLM's weights 0.9, its slots" in text
    assert "51 s of context for voices and one clause 4.4" in text
    assert "use kv_dtype float8 where the GPU has it, or set max_active_clauses to" in text
    num_fitting = int(text.partition("max_active_clauses to ")[2].split()[0])
    lower = replace(config, max_active_clauses=num_fitting)
    check_room(gpu_memory(lower, RELEASED, spare_room(lower)), lower, memory.least_bytes - GIB)
    with pytest.raises(EngineError) as caught:
        check_room(memory, replace(config, kv_dtype="float8"), GIB)
    assert "max_active_clauses" not in str(caught.value), "no number of clauses would help"
    assert "; free its memory, or take a larger one" in str(caught.value)


def test_a_start_refuses_before_it_loads_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    device = gpu_lanes(monkeypatch)
    monkeypatch.setattr(build, "open_device", lambda _: device)
    monkeypatch.setattr(build, "free_gpu_bytes", lambda _: GIB)
    monkeypatch.delattr(build, "load_llm")
    config = resolved(16 * GIB, model_dir=TINY_MODEL_DIR)
    with pytest.raises(EngineError, match=r"1\.0 GiB are free on the GPU and this model takes \d"):
        build.load_stages(config, load_model_config(TINY_MODEL_DIR), {})


@pytest.mark.parametrize(
    ("memory_gib", "num_voices", "left"),
    [
        (80, 16, 5),
        (80, 30, 10),
        (140, 50, 5),
        (140, 100, 10),
        (24, 1, 10),
    ],
)
def test_many_voices_do_not_take_the_memory_of_speech_for_short_first_blocks(
    memory_gib: int, num_voices: int, left: int
) -> None:
    config, free_bytes = resolved(memory_gib * GIB), memory_gib * GIB - PROCESS_BYTES
    room = VoiceRoom((150,) * num_voices)
    fitting = with_layouts_that_fit(config, RELEASED, room, free_bytes)
    assert fitting.whole_first_block_tokens == left
    num_least = num_voices * 6
    num_more = gpu_memory(fitting, RELEASED, room).voice_blocks - num_least
    assert num_more <= gpu_memory(fitting, RELEASED, room).num_blocks_in(free_bytes) / 8


def test_a_start_with_many_voices_has_no_short_first_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    device = gpu_lanes(monkeypatch)
    monkeypatch.setattr(build, "open_device", lambda _: device)
    monkeypatch.setattr(build, "voice_room", lambda *_: VoiceRoom((250,) * 30))
    monkeypatch.setattr(build, "free_gpu_bytes", lambda _: 79 * GIB)
    checked: list[EngineConfig] = []
    monkeypatch.setattr(build, "check_room", lambda _, config, *__: checked.append(config))
    monkeypatch.setattr(TextTokenizer, "from_file", Mock(side_effect=ValueError("far enough")))
    with capture_logs() as logs, pytest.raises(ValueError, match="far enough"):
        build.load_stages(resolved(80 * GIB), RELEASED, {})
    left = {"whole_first_block_tokens": 10}
    assert [{name: getattr(config, name) for name in left} for config in checked] == [left]
    assert {"event": "no_short_first_blocks", "num_prompts": 30, **left, "log_level": "info"} in logs
