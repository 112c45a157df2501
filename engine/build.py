"""A model directory and an EngineConfig -> a running engine: the only place that knows which parts make one."""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import structlog
import torch

from engine import chunking
from engine.audio.packets import create_packet_encoder
from engine.config import EngineConfig
from engine.core import EngineCore
from engine.interface import (
    AudioFormat,
    Done,
    Engine,
    EngineError,
    EngineEvent,
    EngineInfo,
    SpeakingMode,
    UtteranceId,
    UtteranceRequest,
    VoiceInfo,
)
from engine.llm.backend import LlmPrompt
from engine.llm.torch_runner import TorchLlmRunner
from engine.model_config import ModelConfig, load_model_config
from engine.stages import ReadyVoice, Stages
from engine.text.tokenizer import TextTokenizer
from engine.token2wav.flow.prompt import FlowPrompt
from engine.token2wav.flow.runner import FlowRunner
from engine.token2wav.vocoder.runner import VocoderRunner
from engine.units import SAMPLES_PER_TOKEN
from engine.voices.store import load_voices
from engine.voices.voice import Voice
from engine.weights import load_state_dict
from engine.worker import LoadedEngine, ThreadedEngine

log = structlog.get_logger()

Progress = Callable[[str], None]

# Text tokens of the longest clause, its prompt and the special ids around them, on top of its speech tokens.
_LLM_TEXT_ROOM = 512

_WARM_UP_TEXT = "Good morning."


def create_engine(config: EngineConfig, *, on_progress: Progress | None = None) -> Engine:
    """An engine that loads and warms up when started. `on_progress` is called from its thread, a line a part."""
    return ThreadedEngine(partial(load_engine, config, on_progress=on_progress))


def load_engine(config: EngineConfig, *, on_progress: Progress | None = None) -> LoadedEngine:
    """Load, check and warm up everything, in the calling thread. Raises EngineError with the remedy."""
    set_threads(config)
    report = on_progress if on_progress is not None else _nothing
    try:
        with _timed("configuration and voices", report):
            model = load_model_config(config.model_dir)
            voices = load_voices(config.model_dir, model)
        stages = load_stages(config, model, voices, report)
    except (ValueError, OSError) as error:
        raise EngineError(f"cannot load the model in {config.model_dir}: {error}") from error
    core = EngineCore(config, stages, time.monotonic)
    info = engine_info(config, model, voices)
    with _timed("warm-up", report):
        _warm_up(core, info)
    return LoadedEngine(core, info)


def load_stages(
    config: EngineConfig, model: ModelConfig, voices: Mapping[str, Voice], report: Progress | None = None
) -> Stages:
    """The models on their device, and every voice prepared for them. Raises ValueError for unfit files."""
    report = report if report is not None else _nothing
    device = choose_device(config.device)
    num_prompt_blocks = sum(chunking.max_blocks(voice.num_tokens, 0) for voice in voices.values())
    blocks_per_clause = chunking.max_blocks(0, config.max_clause_tokens) + 1
    longest_prompt = max(voice.num_tokens for voice in voices.values())
    with _timed("text tokenizer", report):
        tokenizer = TextTokenizer.from_file(
            config.model_dir / "tokenizer.json", end_of_prompt_id=model.llm.end_of_prompt_id
        )
    with _timed("speech LLM", report):
        llm = TorchLlmRunner(
            model.llm,
            model.sampling,
            load_state_dict(config.model_dir / "llm.safetensors"),
            num_slots=config.max_active_clauses,
            max_positions=min(model.llm.max_positions, config.max_clause_tokens + longest_prompt + _LLM_TEXT_ROOM),
            device=device,
        )
    with _timed("flow", report):
        flow = FlowRunner(
            model.flow,
            load_state_dict(config.model_dir / "flow.safetensors"),
            num_blocks=num_prompt_blocks + config.max_active_clauses * blocks_per_clause,
            max_streams=config.max_active_clauses,
            device=device,
        )
    with _timed("vocoder", report):
        vocoder = VocoderRunner(
            model.vocoder,
            load_state_dict(config.model_dir / "vocoder.safetensors"),
            max_samples=2 * config.max_clause_tokens * SAMPLES_PER_TOKEN,  # at half speed
            max_streams=config.max_active_clauses,
            device=device,
        )
    with _timed("voice prompts", report):
        ready = {name: _ready_voice(voice, tokenizer, flow, config) for name, voice in voices.items()}
    return Stages(model, tokenizer, llm, flow, vocoder, ready)


def set_threads(config: EngineConfig) -> None:
    """torch's CPU kernels use `threads` cores, by default all of this machine's."""
    torch.set_num_threads(config.threads or os.cpu_count() or 1)


def choose_device(name: str) -> torch.device:
    """auto: CUDA where there is one. Raises EngineError for a device that is not there."""
    if name == "cuda" and not torch.cuda.is_available():
        raise EngineError("device 'cuda' was asked for, but torch sees no CUDA device; use --device cpu")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def _ready_voice(voice: Voice, tokenizer: TextTokenizer, flow: FlowRunner, config: EngineConfig) -> ReadyVoice:
    """The LLM keeps the whole prompt; the flow's is trimmed so that its first block is short."""
    prompt = LlmPrompt(
        text_ids=tokenizer.encode_prompt(voice.prompt_text), speech_ids=tuple(voice.speech_tokens.tolist())
    )
    trimmed = voice.trimmed_for_first_block(
        wanted_tokens=config.first_block_tokens, max_trim=config.max_prompt_trim_tokens
    )
    flow_prompt = flow.prepare(FlowPrompt(trimmed.speech_tokens, trimmed.mel, trimmed.embedding))
    return ReadyVoice(voice, prompt, flow_prompt)


def engine_info(config: EngineConfig, model: ModelConfig, voices: Mapping[str, Voice]) -> EngineInfo:
    return EngineInfo(
        model=model.name,
        voices=tuple(VoiceInfo(voice.name, voice.description) for voice in voices.values()),
        default_voice=model.default_voice or min(voices),
        modes=tuple(SpeakingMode),
        pre_skip_48k=create_packet_encoder(AudioFormat()).pre_skip_48k,
        max_utterances=config.max_utterances,
        max_lead_ms=config.max_lead_ms,
    )


def _warm_up(core: EngineCore, info: EngineInfo) -> None:
    """Speak once with every voice through the real path, so that nothing is allocated or compiled later."""
    for voice in info.voices:
        utterance_id = UtteranceId(f"warm-up {voice.name}")
        core.submit(UtteranceRequest(utterance_id, voice.name), seed=0)
        core.push_text(utterance_id, _WARM_UP_TEXT)
        core.end_text(utterance_id)
    events: list[EngineEvent] = []
    while core.step().work is not None:
        events += core.take_events()
    events += core.take_events()
    num_done = sum(isinstance(event, Done) for event in events)
    if num_done != len(info.voices):
        raise EngineError(f"warm-up: {num_done} of {len(info.voices)} voices spoke; see the log")


@contextmanager
def _timed(part: str, report: Progress) -> Iterator[None]:
    started_s = time.monotonic()
    yield
    duration_s = time.monotonic() - started_s
    log.info("loaded", part=part, seconds=round(duration_s, 3))
    report(f"{part}: {duration_s:.1f} s")


def _nothing(_: str) -> None:
    pass
