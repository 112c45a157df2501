"""A model directory and an EngineConfig -> a running engine: the only place that knows which parts make one."""

import gc
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import structlog
import torch

from voicegate.engine.audio.encoder_pool import EncoderProcesses
from voicegate.engine.audio.encoding import Encoders
from voicegate.engine.audio.head_start import HeadStarts
from voicegate.engine.audio.outlet import Sink
from voicegate.engine.audio.packets import pre_skip_48k
from voicegate.engine.config import EngineConfig
from voicegate.engine.core.core import EngineCore
from voicegate.engine.core.prompting import MAX_INSTRUCT_CHARS
from voicegate.engine.core.reception import speaking_modes
from voicegate.engine.core.stages import ReadyVoice, Stages, VoiceRoom
from voicegate.engine.core.voice_shelf import prompt_blocks, ready_voice, voice_room
from voicegate.engine.cores import num_usable_cores
from voicegate.engine.device.watcher import NO_WAKER, Waker
from voicegate.engine.flow.backend import FlowBackend
from voicegate.engine.interface import (
    AudioFormat,
    Engine,
    EngineError,
    EngineInfo,
)
from voicegate.engine.llm.backend import LlmBackend
from voicegate.engine.load.devices import Device, free_gpu_bytes, layout_of, open_device, resolved_for_device
from voicegate.engine.load.family import load_tokenizer
from voicegate.engine.load.llm import load_llm
from voicegate.engine.load.memory import check_room, fitting_room, gpu_memory, with_layouts_that_fit
from voicegate.engine.load.progress import SILENT, Progress
from voicegate.engine.load.rehearsal import rehearsed
from voicegate.engine.load.start_voices import default_of, fitting_voices, warm_up, without_silent
from voicegate.engine.load.startup import ModelStart, freeze_heap, timed
from voicegate.engine.load.token2wav import load_flow, load_vocoder
from voicegate.engine.model.config import ModelConfig
from voicegate.engine.model.model_json import load_model_config
from voicegate.engine.text.tokenizer import TextTokenizer
from voicegate.engine.thread.driven import DrivenCore
from voicegate.engine.thread.worker import LoadedEngine, ThreadedEngine
from voicegate.engine.vocoder.backend import VocoderBackend
from voicegate.engine.voices.keeper import VoiceKeeper
from voicegate.engine.voices.maker import ProcessMaker
from voicegate.engine.voices.store import load_voices
from voicegate.engine.voices.voice import Voice, VoiceError

log = structlog.get_logger()

# On a processor the vocoder takes 14 to 24 ms for a first block, and half of that for the beginning of it (ADR 0018).
# Lower -> a listener may have an underrun before the others are there; higher -> a later first sound.
_FRAMES_AHEAD: Final = 6


def create_engine(config: EngineConfig, *, on_progress: Progress = SILENT) -> Engine:
    """An engine that loads and warms up when started. `on_progress` is told from its thread."""
    return ThreadedEngine(lambda sink, waker: load_engine(config, sink, waker, on_progress=on_progress))


def load_engine(
    config: EngineConfig, sink: Sink, waker: Waker = NO_WAKER, *, on_progress: Progress = SILENT
) -> LoadedEngine:
    """Load, check and warm up everything, in the calling thread.

    Raises EngineError with the remedy for files and settings that do not fit, and what CUDA and Triton raise.
    """
    set_threads(config)
    config, layout = resolved_for_device(config), layout_of(config)
    if layout is not None:
        return layout.load_engine(config, sink, waker, on_progress)
    with readable(config):
        model, voices = load_model(config, on_progress)
        stages = load_stages(config, model, voices, on_progress)
    with ExitStack() as running:  # beside this thread; ended if anything here fails
        running.callback(stages.llm.close)
        with timed("warm-up", on_progress):
            default = default_of(config, model, stages.voices)
            silent = warm_up(config, stages, default)
            (stages,) = without_silent(config, [stages], silent)
            block_time = rehearsed(config, stages, default)

        def core(encoders: Encoders | None) -> DrivenCore:
            return EngineCore(
                config, stages, time.monotonic, sink, encoders=encoders, waker=waker, block_time=block_time
            )

        return started(config, [stages], core, on_progress, running)


@contextmanager
def readable(config: EngineConfig) -> Iterator[None]:
    """Raises EngineError that names the model's directory for files that do not fit."""
    try:
        yield
    except (ValueError, OSError) as error:
        raise EngineError(f"cannot load the model in {config.model_dir}: {error}") from error


def load_model(config: EngineConfig, progress: Progress) -> tuple[ModelConfig, Mapping[str, Voice]]:
    """Reads everything before anything is loaded. Raises ValueError, OSError, EngineError."""
    with timed("configuration and voices", progress):
        model = load_model_config(config.model_dir)
        return model, configured_voices(config, model)


def started(
    config: EngineConfig,
    all_stages: Sequence[Stages],
    core_of: Callable[[Encoders | None], DrivenCore],
    progress: Progress,
    running: ExitStack,
) -> LoadedEngine:
    """Stages that have spoken, with what runs beside them. `running`: what is ended with the engine, taken over."""
    encoders: Encoders | None = None
    if config.encoder_processes:
        with timed("encoder processes", progress):
            processes = EncoderProcesses(config.encoder_processes)
            encoders = HeadStarts(processes, time.monotonic)
        running.callback(encoders.close)
    core = core_of(encoders)
    freeze_heap()
    running.callback(gc.unfreeze)
    info = engine_info(config, *all_stages)
    keeper = VoiceKeeper(ProcessMaker(config.model_dir), config.voices_dir)
    return LoadedEngine(core, info, close=running.pop_all().close, voices=keeper, encoders=encoders)


def configured_voices(config: EngineConfig, model: ModelConfig) -> Mapping[str, Voice]:
    """The model's own and the user's. Raises EngineError, and as `load_voices` for what is no voice's fault."""
    try:
        return load_voices(config.model_dir, model, config.voices_dir)
    except VoiceError as error:
        raise EngineError(f"cannot load the voices: {error}") from error


def load_stages(
    config: EngineConfig, model: ModelConfig, voices: Mapping[str, Voice], progress: Progress = SILENT
) -> Stages:
    """The models on their device, and every voice prepared for them. `config` is resolved.

    Raises ValueError for unfit files, and EngineError for a device that cannot hold or run them.
    """
    device = open_device(config)
    start = ModelStart(device.device, progress)
    free_bytes = free_gpu_bytes(device.device) if device.is_cuda else None
    config, room = with_room(config, model, voices.values(), free_bytes)
    if free_bytes is not None:
        check_room(gpu_memory(config, model, room), config, free_bytes)
    tokenizer, voices = load_text(config, model, voices, progress)
    with timed("speech LLM", progress), device.current():
        llm = load_llm(config, model, device, num_prompt_tokens=room.longest_tokens, start=start)
    with ExitStack() as running:
        running.callback(llm.close)
        with timed("vocoder", progress), device.current():
            vocoder = load_vocoder(config, model, device, start=start)
        with timed("flow", progress), device.current():
            flow = load_flow(config, model, device, room=room, start=start)
        with device.current():
            start.finish()
        token2wav = Token2wav(device, flow, vocoder)
        with timed("voice prompts", progress), device.token2wav_lane.active():
            on_ready = partial(progress.share, "voice prompts")
            ready = ready_voices(voices, model, tokenizer, flow, prompt_blocks(room, flow), on_ready)
        running.pop_all()
    return stages_of(model, tokenizer, llm, token2wav, ready, room)


@dataclass(frozen=True, slots=True)
class Token2wav:
    """Flow and vocoder, which make sound of speech tokens, on their device."""

    device: Device
    flow: FlowBackend[Any, Any]
    vocoder: VocoderBackend


def stages_of(
    model: ModelConfig,
    tokenizer: TextTokenizer,
    llm: LlmBackend,
    token2wav: Token2wav,
    ready: Mapping[str, ReadyVoice],
    room: VoiceRoom,
) -> Stages:
    device, vocoder = token2wav.device, token2wav.vocoder
    return Stages(
        model,
        tokenizer,
        llm,
        token2wav.flow,
        vocoder,
        ready,
        voice_room=room,
        token2wav_lane=device.token2wav_lane,
        is_concurrent=device.is_cuda,
        frames_ahead=_FRAMES_AHEAD if vocoder.takes_any_cut and not device.is_cuda else 0,
    )


def with_room(
    config: EngineConfig, model: ModelConfig, voices: Iterable[Voice], free_bytes: int | None
) -> tuple[EngineConfig, VoiceRoom]:
    """`config` as it fits, and what there is room for. `free_bytes`: of a GPU with a flow; None: it is on the CPU."""
    room = fitting_room(config, model, voice_room(config, voices), free_bytes)
    if free_bytes is None:
        return config, room
    fitting = with_layouts_that_fit(config, model, room, free_bytes)
    if fitting != config:
        log.info(
            "no_short_first_blocks",
            num_prompts=len(room.prompt_tokens),  # the spare voices' among them
            whole_first_block_tokens=fitting.whole_first_block_tokens,
        )
    return fitting, room


def load_text(
    config: EngineConfig, model: ModelConfig, voices: Mapping[str, Voice], progress: Progress
) -> tuple[TextTokenizer, Mapping[str, Voice]]:
    """The tokenizer, and the voices that can be spoken with. Raises TokenizerError, EngineError."""
    with timed("text", progress):
        tokenizer = load_tokenizer(config.model_dir, model)
        return tokenizer, fitting_voices(config, model, voices, tokenizer)


def ready_voices(
    voices: Mapping[str, Voice],
    model: ModelConfig,
    tokenizer: TextTokenizer,
    flow: FlowBackend[Any, Any],
    most_blocks: int,
    on_ready: Callable[[int, int], object],
) -> Mapping[str, ReadyVoice]:
    """All can be rendered, and stay so as long as there is room for `most_blocks`.

    `on_ready` is told how many of how many are: each takes a CPU a good part of a second.
    """
    ready = {}
    for number, (name, voice) in enumerate(voices.items(), 1):
        ready[name] = each = ready_voice(voice, model, tokenizer, flow)
        most_blocks -= each.flow_prompt.num_blocks
        if most_blocks < 0:
            most_blocks += each.flow_prompt.num_blocks
            each.flow_prompt.give_back(flow)
        on_ready(number, len(voices))
    return ready


def set_threads(config: EngineConfig) -> None:
    """torch's CPU kernels use `threads` cores, by default all that this process may use; fewer beside neighbours."""
    torch.set_num_threads(config.threads or num_usable_cores())


def engine_info(config: EngineConfig, stages: Stages, *others: Stages) -> EngineInfo:
    """`others`: of further token2wavs with the same LLM, each of which takes as many utterances."""
    model, traits = stages.model, stages.llm.traits
    return EngineInfo(
        model=model.name,
        voices=tuple(ready.voice.info(model.languages) for ready in stages.voices.values()),
        default_voice=default_of(config, model, stages.voices),
        modes=speaking_modes(traits),
        pre_skip_48k=pre_skip_48k(AudioFormat()),
        max_utterances=config.max_utterances * (1 + len(others)),
        max_lead_ms=config.max_lead_ms,
        max_text_chars=config.max_text_chars,
        max_instruct_chars=MAX_INSTRUCT_CHARS if model.supports_instruct else 0,
        is_reproducible=traits.is_reproducible,
        family=model.family,
        languages=model.languages,
        flow=stages.flow.name,
        vocoder=stages.vocoder.name,
    )
