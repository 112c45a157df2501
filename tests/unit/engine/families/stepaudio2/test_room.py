"""The second family's part of the memory's formula, against upstream's parameter counts."""

import json
from dataclasses import replace

import torch

from tests.support.stepaudio2 import STEPAUDIO2_DIR, tiny_section
from tests.unit.engine.load.test_memory import H200_BYTES, MEASURED_ROOM, RELEASED, resolved
from voicegate.engine.families.stepaudio2.config import stepaudio2_flow_config
from voicegate.engine.load.family import family_of
from voicegate.engine.load.memory import GIB, gpu_memory
from voicegate.engine.model.model_json import vocoder_config
from voicegate.engine.model.upstream_kinds import COSYVOICE2_STEPAUDIO2


def test_a_second_of_the_second_familys_context_takes_a_third() -> None:
    full = json.loads((STEPAUDIO2_DIR / "config_tiny.json").read_text())["full"]
    manifest = json.loads((STEPAUDIO2_DIR / "manifest_full.json").read_text())
    hift = tiny_section()["hift"] | {"base_channels": 512}
    model = replace(
        RELEASED,
        family=COSYVOICE2_STEPAUDIO2,
        flow=stepaudio2_flow_config(full),
        vocoder=vocoder_config(hift, f0_channels=512),
        name="other",
    )
    needs = family_of(model).needs(model, dtype=torch.bfloat16, kv_dtype=torch.bfloat16, num_layouts=1)
    counts = manifest["param_counts"]
    assert needs.num_flow_weights == counts["flow.total"]
    assert needs.num_vocoder_weights == counts["hift.total"]
    first = family_of(RELEASED).needs(RELEASED, dtype=torch.bfloat16, kv_dtype=torch.bfloat16, num_layouts=1)
    assert (needs.bytes_per_second, first.bytes_per_second) == (33_484_800, 92_569_600)
    assert needs.num_speech_blocks(750) == 150
    memory = gpu_memory(resolved(H200_BYTES), model, MEASURED_ROOM)
    assert memory.working_bytes == 6 * GIB
    assert (memory.block_frames, memory.voice_blocks, memory.clause_blocks) == (10, 25 + 50 + 50, 150)
