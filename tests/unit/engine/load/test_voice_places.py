"""How many voices' prompts a start makes room for: all, as long as half of the free memory takes them."""

from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from tests.support.tiny_engine import CONFIG, tiny_stages
from tests.unit.engine.load.test_memory import RELEASED, resolved
from voicegate.engine.core.stages import VoiceRoom
from voicegate.engine.load import memory
from voicegate.engine.load.build import load_stages
from voicegate.engine.load.memory import GIB, PROCESS_BYTES, fitting_room, gpu_memory, room_within
from voicegate.engine.voices.store import load_voices


@pytest.mark.parametrize(("num_voices", "has_all"), [(10, True), (30, True), (256, False)])
def test_a_start_on_a_gpu_fits_however_many_voices_there_are(num_voices: int, has_all: bool) -> None:
    config, room = resolved(80 * GIB), VoiceRoom((250,) * num_voices)
    free_bytes = 80 * GIB - PROCESS_BYTES
    fitting = fitting_room(config, RELEASED, room, free_bytes)
    assert (fitting == room) is has_all
    assert gpu_memory(config, RELEASED, VoiceRoom((250,))).num_blocks_in(free_bytes) >= 2 * 10 * len(
        fitting.prompt_tokens
    )


def test_the_longest_has_a_place_where_there_is_none_for_anybody() -> None:
    config = resolved(80 * GIB)
    with capture_logs() as logs:
        fitting = fitting_room(config, RELEASED, VoiceRoom((60, 250, 100)), GIB)
    assert fitting.prompt_tokens == (250,)
    assert {"event": "voices_take_turns", "num_prompts": 3, "num_held": 1, "log_level": "info"} in logs


def test_a_start_renders_all_and_keeps_as_many_as_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_stages().model
    voices = {f"guest{number}": load_voices(CONFIG.model_dir, model)["man"] for number in range(5)}
    monkeypatch.setattr(memory, "room_within", lambda room, num_blocks, _: room_within(room, num_blocks, 6))
    stages = load_stages(replace(CONFIG, spare_voices=0), model, voices)
    held = [name for name, each in stages.voices.items() if each.flow_prompt.rendered is not None]
    num_blocks = stages.voices["guest0"].flow_prompt.num_blocks
    assert 1 < num_blocks < 6
    assert held == [f"guest{number}" for number in range(6 // num_blocks)]
    assert all(each.flow_prompt.first_block_tokens for each in stages.voices.values())


def test_where_all_fit_nothing_changes() -> None:
    room = VoiceRoom((60, 250, 40, 100, 100))
    assert room_within(room, lambda num_tokens: num_tokens, 550) is room
    assert room_within(room, lambda num_tokens: num_tokens, 460).prompt_tokens == (250, 100, 100)
    assert room_within(room, lambda num_tokens: num_tokens, 400).prompt_tokens == (250, 100, 40)
    assert room_within(room, lambda num_tokens: num_tokens, 5).prompt_tokens == (250,), "one voice must speak"
