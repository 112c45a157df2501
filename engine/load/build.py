"""A model directory and an EngineConfig -> a running engine: the only place that knows which parts make one."""

import gc
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any, Final

import structlog
import torch

from voicegate.engine.audio.encoder_pool import EncoderProcesses
from voicegate.engine.audio.encoding import Encoders
from voicegate.engine.audio.head_start import HeadStarts
from voicegate.engine.audio.outlet import Sink
from voicegate.engine.audio.packets import pre_skip_48k
from voicegate.engine.backends.disaggregated.core import DisaggregatedCore
from voicegate.engine.config import EngineConfig
from voicegate.engine.core.core import EngineCore
from voicegate.engine.core.driven import DrivenCore
from voicegate.engine.core.prompting import MAX_INSTRUCT_CHARS
from voicegate.engine.core.reception import speaking_modes
from voicegate.engine.core.stages import ReadyVoice, Stages, VoiceRoom
from voicegate.engine.core.voice_shelf import prompt_blocks, ready_voice, voice_room
from voicegate.engine.core.worker import LoadedEngine, ThreadedEngine
from voicegate.engine.cores import num_usable_cores
from voicegate.engine.device.watcher import NO_WAKER, Waker
from voicegate.engine.flow.backend import FlowBackend
from voicegate.engine.interface import (
    AudioFormat,
    Engine,
    EngineError,
    EngineInfo,
)
from voicegate.engine.load.devices import Devices, free_gpu_bytes, open_devices, resolved_for_device
from voicegate.engine.load.family import load_tokenizer
from voicegate.engine.load.llm import load_llm
from voicegate.engine.load.memory import check_room, gpu_memory, memory_apart, with_layouts_that_fit
from voicegate.engine.load.progress import SILENT, Progress
from voicegate.engine.load.start_voices import default_of, fitting_voices, warm_up, without_silent
from voicegate.engine.load.startup import ModelStart, freeze_heap, timed
from voicegate.engine.load.token2wav import load_flow, load_vocoder
from voicegate.engine.load.voice_places import fitting_room
from voicegate.engine.model.config import ModelConfig
from voicegate.engine.model.model_json import load_model_config
from voicegate.engine.text.tokenizer import TextTokenizer
from voicegate.engine.voices.keeper import VoiceKeeper
from voicegate.engine.voices.maker import ProcessMaker
from voicegate.engine.voices.store import load_voices
from voicegate.engine.voices.voice import Voice, VoiceError

log = structlog.get_logger()

# On a processor the vocoder takes 14 to 24 ms for a first block, and half of that for the beginning of it (ADR 0018).
# Lower -> a listener may run dry before the others are there; higher -> a later first sound.
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
    config = resolved_for_device(config)
    try:
        with timed("configuration and voices", on_progress):
            model = load_model_config(config.model_dir)
            voices = configured_voices(config, model)
        all_stages = load_all_stages(config, model, voices, on_progress)
    except (ValueError, OSError) as error:
        raise EngineError(f"cannot load the model in {config.model_dir}: {error}") from error
    default = default_of(config, model, all_stages[0].voices)
    keeper = VoiceKeeper(ProcessMaker(config.model_dir), config.voices_dir)
    with ExitStack() as running:  # beside this thread; ended if anything here fails
        running.callback(all_stages[0].llm.close)
        silent: dict[str, str] = {}
        for number, stages in enumerate(all_stages):
            where = _where(config, 1 + number)
            with timed(f"warm-up{where}", on_progress), _blamed(where):
                silent |= warm_up(config, stages, default)
        all_stages = without_silent(config, all_stages, silent)
        encoders: Encoders | None = None
        if config.encoder_processes:
            with timed("encoder processes", on_progress):
                processes = EncoderProcesses(config.encoder_processes)
                encoders = HeadStarts(processes, time.monotonic)
            running.callback(encoders.close)
        core: DrivenCore
        if config.is_disaggregated:
            core = DisaggregatedCore(config, all_stages, time.monotonic, sink, encoders=encoders, waker=waker)
        else:
            core = EngineCore(config, all_stages[0], time.monotonic, sink, encoders=encoders, waker=waker)
        freeze_heap()
        running.callback(gc.unfreeze)
        info = engine_info(config, *all_stages)
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
    """The models on their devices, one of which has flow and vocoder. Raises as `load_all_stages`."""
    (stages,) = load_all_stages(config, model, voices, progress)
    return stages


def load_all_stages(
    config: EngineConfig, model: ModelConfig, voices: Mapping[str, Voice], progress: Progress = SILENT
) -> tuple[Stages, ...]:
    """The models on their devices, and every voice prepared for them: stages for each token2wav, with one LLM.

    Raises ValueError for unfit files, and EngineError for devices that cannot hold or run them.
    """
    devices = open_devices(config)
    starts = {each: ModelStart(each.device, progress) for each in devices.all}
    gpu_bytes = _free_bytes(devices)
    wanted, is_apart = voice_room(config, voices.values()), devices.is_llm_apart
    room = fitting_room(config, model, wanted, gpu_bytes, is_llm_apart=is_apart)
    if gpu_bytes is not None:
        config = _with_layouts_that_fit(config, model, room, gpu_bytes, is_llm_apart=is_apart)
    # The LLM has slots for all token2wavs.
    llm_config = replace(config, max_active_clauses=config.max_active_clauses * len(devices.token2wavs))
    _check_rooms(devices, config, model, room)
    with timed("text", progress):
        tokenizer = load_tokenizer(config.model_dir, model)
        voices = fitting_voices(config, model, voices, tokenizer)
    where = _where(config, 0)
    with timed(f"speech LLM{where}", progress), _blamed(where), devices.llm.current():
        start = starts[devices.llm]
        llm = load_llm(llm_config, model, devices.llm, num_prompt_tokens=room.longest_tokens, start=start)
    with ExitStack() as running:
        running.callback(llm.close)
        parts = []
        for place, device in enumerate(devices.token2wavs, 1):
            start, where = starts[device], _where(config, place)
            with timed(f"vocoder{where}", progress), _blamed(where), device.current():
                vocoder = load_vocoder(config, model, device, start=start)
            with timed(f"flow{where}", progress), _blamed(where), device.current():
                flow = load_flow(config, model, device, room=room, start=start)
            parts.append((device, flow, vocoder))
        for place, (device, start) in enumerate(starts.items()):  # in turn: see startup.py of equal kernels
            with _blamed(_where(config, place)), device.current():
                start.finish()
        ready = []
        for place, (device, flow, _) in enumerate(parts, 1):
            where = _where(config, place)
            with timed(f"voice prompts{where}", progress), _blamed(where), device.token2wav_lane.active():
                on_ready = partial(progress.share, f"voice prompts{where}")
                ready.append(_ready_voices(voices, model, tokenizer, flow, prompt_blocks(room, flow), on_ready))
        running.pop_all()
    names = count()  # of the LLM's sequences
    return tuple(
        Stages(
            model,
            tokenizer,
            llm,
            flow,
            vocoder,
            prepared,
            voice_room=room,
            token2wav_lane=device.token2wav_lane,
            is_concurrent=device.is_cuda,
            is_llm_apart=devices.is_llm_apart,
            frames_ahead=_FRAMES_AHEAD if vocoder.takes_any_cut and not device.is_cuda else 0,
            sequence_ids=names,
        )
        for (device, flow, vocoder), prepared in zip(parts, ready, strict=True)
    )


def _ready_voices(
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


def _free_bytes(devices: Devices) -> int | None:
    """Of the GPU with a flow that has least; None: there is none."""
    if not devices.llm.is_cuda:
        return None
    return min(free_gpu_bytes(each.device) for each in devices.token2wavs)


def _with_layouts_that_fit(
    config: EngineConfig, model: ModelConfig, room: VoiceRoom, free_bytes: int, *, is_llm_apart: bool
) -> EngineConfig:
    fitting = with_layouts_that_fit(config, model, room, free_bytes, is_llm_apart=is_llm_apart)
    if fitting != config:
        log.info(
            "no_short_first_blocks",
            num_prompts=len(room.prompt_tokens),  # the spare voices' among them
            whole_first_block_tokens=fitting.whole_first_block_tokens,
        )
    return fitting


def _check_rooms(devices: Devices, config: EngineConfig, model: ModelConfig, room: VoiceRoom) -> None:
    """Before anything is loaded. Raises EngineError."""
    if not devices.llm.is_cuda:
        return
    if not devices.is_llm_apart:
        check_room(gpu_memory(config, model, room), config, free_gpu_bytes(devices.llm.device))
        return
    of_llm, of_token2wav = memory_apart(config, model, room)
    for device in devices.all:
        memory = of_llm if device is devices.llm else of_token2wav
        check_room(memory, config, free_gpu_bytes(device.device), where=str(device.device))


def _where(config: EngineConfig, place: int) -> str:
    """Where there are several devices to tell apart: the LLM's is the first."""
    return f" on {config.device_names[place]}" if config.is_disaggregated else ""


@contextmanager
def _blamed(where: str) -> Iterator[None]:
    """Names the device in what it raises; what unfit files raise is nobody's. Raises EngineError."""
    try:
        yield
    except (ValueError, OSError):
        raise
    except Exception as error:
        if not where:
            raise
        kind = "" if isinstance(error, EngineError) else f"{type(error).__name__}: "
        raise EngineError(f"the start failed{where}: {kind}{error}") from error


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
