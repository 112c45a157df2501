"""How many voices a disaggregated engine has room for: the LLM takes none of a token2wav's GPU."""

from dataclasses import replace
from itertools import count

import pytest

from tests.unit.engine.load.test_memory import RELEASED, resolved
from voicegate.engine.backends.disaggregated.addition import ADDITION
from voicegate.engine.config import EngineConfig
from voicegate.engine.core.stages import VoiceRoom
from voicegate.engine.load.memory import GIB, PROCESS_BYTES, fitting_room, gpu_memory, spare_room, with_layouts_that_fit


def test_where_the_llm_has_a_gpu_of_its_own_its_memory_does_not_count() -> None:
    memory_bytes = 80 * GIB
    alone = resolved(memory_bytes, max_active_clauses=1000)
    placed = replace(alone, llm_device="cuda:0", token2wav_devices=("cuda:1",))

    def most_voices(config: EngineConfig) -> int:
        """With short first blocks."""
        for num_voices in count(1):
            room = VoiceRoom((150,) * num_voices)
            if with_layouts_that_fit(config, RELEASED, room, memory_bytes) != config:
                return num_voices - 1
        raise AssertionError

    together = gpu_memory(alone, RELEASED, spare_room(alone)).num_blocks_in(memory_bytes)
    apart = ADDITION.gpu_memories(placed, RELEASED, spare_room(placed))["cuda:1"].num_blocks_in(memory_bytes)
    assert apart > 1.3 * together
    expected = most_voices(alone) * apart / together
    assert most_voices(placed) == pytest.approx(expected, abs=2)


def test_as_many_voices_have_a_place_as_beside_the_llm_or_more() -> None:
    together, room = resolved(80 * GIB), VoiceRoom((250,) * 256)
    placed = replace(together, llm_device="cuda:0", token2wav_devices=("cuda:1",))
    of_both, of_flow = (fitting_room(each, RELEASED, room, 80 * GIB - PROCESS_BYTES) for each in (together, placed))
    assert len(of_flow.prompt_tokens) >= len(of_both.prompt_tokens)
