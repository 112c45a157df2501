"""A small model of Step-Audio2's token2wav with generated weights, as a directory, and the engine's parts from it.

The LLM, the tokenizer and the voices are the tiny model's: speech tokens and mel are the same in both families.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from tests.support.golden import TINY_MODEL_DIR
from tests.support.stepaudio2 import flow_state, tiny_section, vocoder_state
from tests.support.tiny_engine import CONFIG
from voicegate.engine.config import EngineConfig
from voicegate.engine.core.stages import Stages
from voicegate.engine.core.voice_shelf import ready_voice
from voicegate.engine.families.stepaudio2.flow.chunking import CHUNK_TOKENS, ChunkSchedule, whole_context
from voicegate.engine.families.stepaudio2.flow.memory import FlowMemory
from voicegate.engine.families.stepaudio2.flow.runner import StepAudio2FlowRunner
from voicegate.engine.families.stepaudio2.flow.stream import StreamRules
from voicegate.engine.families.stepaudio2.flow.torch_solver import TorchSolver
from voicegate.engine.load.build import load_stages
from voicegate.engine.model.model_json import load_model_config
from voicegate.engine.model.upstream_kinds import COSYVOICE2_STEPAUDIO2
from voicegate.engine.voices.store import load_voices


def write_model(model_dir: Path) -> Path:
    model_dir.mkdir()
    for name in (
        "llm.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "voices",
        "speech_tokenizer.safetensors",
    ):
        (model_dir / name).symlink_to(TINY_MODEL_DIR / name)
    raw: dict[str, Any] = json.loads((TINY_MODEL_DIR / "model.json").read_text())
    del raw["flow"], raw["hift"]
    raw |= {"name": "tiny-stepaudio2", "model_type": COSYVOICE2_STEPAUDIO2, "token2wav": tiny_section()}
    (model_dir / "model.json").write_text(json.dumps(raw))
    save(flow_state(), model_dir / "flow.safetensors")
    save(vocoder_state(), model_dir / "vocoder.safetensors")
    return model_dir


def save(state: Mapping[str, torch.Tensor], path: Path) -> None:
    save_file(dict(state), path)


def config_for(model_dir: Path, **settings: Any) -> EngineConfig:
    return replace(CONFIG, model_dir=model_dir, **settings)


def stages_of(model_dir: Path, **settings: Any) -> Stages:
    model = load_model_config(model_dir)
    return load_stages(config_for(model_dir, **settings), model, load_voices(model_dir, model))


def flow_of(stages: Stages) -> StepAudio2FlowRunner:
    assert isinstance(stages.flow, StepAudio2FlowRunner)
    return stages.flow


def with_memory(stages: Stages, *, num_more_blocks: int) -> Stages:
    """These models, with so many blocks of the flow's memory beyond those of their voices."""
    model = flow_of(stages).model
    num_voice_blocks = sum(ready.flow_prompt.num_blocks for ready in stages.voices.values())
    memory = FlowMemory(
        model.config, num_blocks=num_voice_blocks + num_more_blocks, device=model.device, dtype=model.dtype
    )
    max_streams = CONFIG.max_active_clauses
    schedule = ChunkSchedule((CONFIG.first_block_tokens, *CHUNK_TOKENS[1:]))
    flow = StepAudio2FlowRunner(
        model,
        memory,
        TorchSolver(model, memory, max_batches=max_streams),
        max_streams=max_streams,
        rules=StreamRules(schedule, whole_context),
    )
    voices = {
        name: ready_voice(ready.voice, stages.model, stages.tokenizer, flow) for name, ready in stages.voices.items()
    }
    return replace(stages, flow=flow, voices=voices)
