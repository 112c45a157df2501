"""Where a disaggregated engine's models go, and how they are loaded: the speech LLM on a device of its own.

Each token2wav is a flow and a vocoder on one of the other devices (docs/adr/0024).
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Final

import torch

from voicegate.engine.audio.encoding import Encoders
from voicegate.engine.audio.outlet import Sink
from voicegate.engine.backends.disaggregated.config import device_names, devices_of
from voicegate.engine.backends.disaggregated.core import DisaggregatedCore
from voicegate.engine.config import EngineConfig, Gpu
from voicegate.engine.core.stages import Stages, VoiceRoom
from voicegate.engine.core.voice_shelf import prompt_blocks
from voicegate.engine.device.watcher import Waker
from voicegate.engine.interface import EngineError
from voicegate.engine.llm.cuda.config import LINE_BUCKETS
from voicegate.engine.load.build import (
    Token2wav,
    load_model,
    load_text,
    readable,
    ready_voices,
    stages_of,
    started,
    with_room,
)
from voicegate.engine.load.devices import Device, free_gpu_bytes, gpu_of, named_device, opened, resolved_for_cpu
from voicegate.engine.load.llm import load_llm
from voicegate.engine.load.memory import GpuMemory, check_room, gpu_memory
from voicegate.engine.load.progress import SILENT, Progress
from voicegate.engine.load.seams import Layout
from voicegate.engine.load.start_voices import default_of, warm_up, without_silent
from voicegate.engine.load.startup import ModelStart, timed
from voicegate.engine.load.token2wav import load_flow, load_vocoder
from voicegate.engine.model.config import ModelConfig
from voicegate.engine.thread.worker import LoadedEngine
from voicegate.engine.voices.voice import Voice


@dataclass(frozen=True, slots=True)
class Devices:
    """Which device has which models."""

    llm: Device
    token2wavs: tuple[Device, ...]


class Disaggregated:
    """Implements Layout."""

    def resolved(self, config: EngineConfig) -> EngineConfig:
        """Each token2wav takes as much as suits the smallest of their GPUs."""
        gpus = [gpu_of(device) for device in _named(config)[1:] if device.type == "cuda"]
        return self.limited(config, config.resolved("cuda", smallest(gpus))) if gpus else resolved_for_cpu(config)

    def limited(self, config: EngineConfig, resolved: EngineConfig) -> EngineConfig:
        """As many slots as one LLM has for each token2wav."""
        num_token2wavs = len(config.token2wav_devices)
        most = LINE_BUCKETS[-1] // num_token2wavs
        if config.max_active_clauses > most:
            raise EngineError(
                f"max_active_clauses is {config.max_active_clauses} for each of {num_token2wavs} token2wavs; one LLM "
                f"takes {LINE_BUCKETS[-1]} at once, which is {most} for each"
            )
        return replace(resolved, max_active_clauses=min(resolved.max_active_clauses, most))

    def gpu_memories(self, config: EngineConfig, model: ModelConfig, room: VoiceRoom) -> Mapping[str, GpuMemory]:
        token2wav = replace(gpu_memory(config, model, room), llm_weight_bytes=0, llm_slot_bytes=0)
        llm = replace(
            gpu_memory(_for_all(config), model, room),
            vocoder_bytes=0,
            backend_bytes=0,
            flow_weight_bytes=0,
            working_bytes=0,
            voice_blocks=0,
            clause_blocks=0,
        )
        llm_device, *token2wavs = devices_of(config)
        return {llm_device: llm, **dict.fromkeys(token2wavs, token2wav)}

    def load_engine(self, config: EngineConfig, sink: Sink, waker: Waker, progress: Progress) -> LoadedEngine:
        with readable(config):
            model, voices = load_model(config, progress)
            all_stages = load_all_stages(config, model, voices, progress)
        with ExitStack() as running:  # ended if anything here fails
            running.callback(all_stages[0].llm.close)
            default = default_of(config, model, all_stages[0].voices)
            silent: dict[str, str] = {}
            for name, stages in zip(device_names(config)[1:], all_stages, strict=True):
                with timed(f"warm-up on {name}", progress), _blamed(name):
                    silent |= warm_up(config, stages, default)
            all_stages = without_silent(config, all_stages, silent)

            def core(encoders: Encoders | None) -> DisaggregatedCore:
                return DisaggregatedCore(config, all_stages, time.monotonic, sink, encoders=encoders, waker=waker)

            return started(config, all_stages, core, progress, running)


ADDITION: Final[Layout] = Disaggregated()


def open_devices(config: EngineConfig) -> Devices:
    """Raises EngineError for a GPU that is not there, or cannot do what `config` asks of it."""
    llm, *token2wavs = _named(config)
    any_products = replace(config, flow_products="precision")  # the LLM's device has no flow
    return Devices(opened(any_products, llm), tuple(opened(config, each) for each in token2wavs))


def load_all_stages(
    config: EngineConfig, model: ModelConfig, voices: Mapping[str, Voice], progress: Progress = SILENT
) -> tuple[Stages, ...]:
    """Stages for each token2wav, with one LLM. `config` is resolved. Raises as build.load_stages."""
    devices = open_devices(config)
    all_devices = (devices.llm, *devices.token2wavs)
    llm_name, *names = device_names(config)
    starts = [ModelStart(device.device, progress) for device in all_devices]
    free_bytes = min(free_gpu_bytes(each.device) for each in devices.token2wavs) if devices.llm.is_cuda else None
    config, room = with_room(config, model, voices.values(), free_bytes)
    if devices.llm.is_cuda:  # before anything is loaded
        for name, memory in ADDITION.gpu_memories(config, model, room).items():
            check_room(memory, config, free_gpu_bytes(torch.device(name)), where=name)
    tokenizer, voices = load_text(config, model, voices, progress)
    with timed(f"speech LLM on {llm_name}", progress), _blamed(llm_name), devices.llm.current():
        num_prompt_tokens = room.longest_tokens
        llm = load_llm(_for_all(config), model, devices.llm, num_prompt_tokens=num_prompt_tokens, start=starts[0])
    with ExitStack() as running:
        running.callback(llm.close)
        parts = []
        for name, device, start in zip(names, devices.token2wavs, starts[1:], strict=True):
            with timed(f"vocoder on {name}", progress), _blamed(name), device.current():
                vocoder = load_vocoder(config, model, device, start=start)
            with timed(f"flow on {name}", progress), _blamed(name), device.current():
                flow = load_flow(config, model, device, room=room, start=start)
            parts.append(Token2wav(device, flow, vocoder))
        for name, device, start in zip(device_names(config), all_devices, starts, strict=True):
            with _blamed(name), device.current():  # in turn: see startup.py of equal kernels
                start.finish()
        all_ready = []
        for name, part in zip(names, parts, strict=True):
            with timed(f"voice prompts on {name}", progress), _blamed(name), part.device.token2wav_lane.active():
                on_ready = partial(progress.share, f"voice prompts on {name}")
                most_blocks = prompt_blocks(room, part.flow)
                all_ready.append(ready_voices(voices, model, tokenizer, part.flow, most_blocks, on_ready))
        running.pop_all()
    sequence_ids = count()
    return tuple(
        replace(
            stages_of(model, tokenizer, llm, part, ready, room),
            shares_device=False,
            sequence_ids=sequence_ids,
        )
        for part, ready in zip(parts, all_ready, strict=True)
    )


def smallest(gpus: Sequence[Gpu]) -> Gpu:
    """The least that all of them have."""
    return Gpu(
        memory_bytes=min(gpu.memory_bytes for gpu in gpus),
        num_multiprocessors=min(gpu.num_multiprocessors for gpu in gpus),
        has_float8=all(gpu.has_float8 for gpu in gpus),
    )


def _for_all(config: EngineConfig) -> EngineConfig:
    """The LLM's: it has slots for all token2wavs."""
    return replace(config, max_active_clauses=config.max_active_clauses * len(config.token2wav_devices))


def _named(config: EngineConfig) -> list[torch.device]:
    """The LLM's device, then each token2wav's. Raises EngineError for a GPU that is not there."""
    return [named_device(name) for name in devices_of(config)]


@contextmanager
def _blamed(device: str) -> Iterator[None]:
    """Names the device in what it raises; what unfit files raise is nobody's. Raises EngineError."""
    try:
        yield
    except (ValueError, OSError):
        raise
    except Exception as error:
        kind = "" if isinstance(error, EngineError) else f"{type(error).__name__}: "
        raise EngineError(f"the start failed on {device}: {kind}{error}") from error
