"""Engine processes, for each of `--gpus` or for the one engine, and their front: the composition root without torch."""

import dataclasses
import os
import socket
from collections.abc import Mapping, Sequence
from functools import partial

import msgspec

from voicegate.engine.config import EngineConfig, distinct_names
from voicegate.engine.cores import num_usable_cores
from voicegate.engine.interface import Engine, EngineError
from voicegate.engine.load.progress import SILENT, Progress
from voicegate.engine.process.front import RoutingEngine
from voicegate.engine.process.keeper import EngineProcess, Site, launched
from voicegate.gateway.cli.engine_place import VISIBLE_DEVICES
from voicegate.gateway.cli.engine_settings import engine_config
from voicegate.gateway.config import CPU, GatewayConfig, LogFormat, LogLevel

_MODULE = "voicegate.gateway.cli.engine_process"
_MAX_ENCODER_PROCESSES = 8  # of an engine, as one alone has at most
_ALONE = "engine"  # the name of the one engine's process, which chooses its device itself


class EngineTask(msgspec.Struct, frozen=True):
    """An engine process is greeted with this."""

    name: str
    engine: EngineConfig
    log_level: LogLevel
    log_format: LogFormat
    log_lines_per_s: int | None

    def encode(self) -> bytes:
        return msgspec.json.encode(self, enc_hook=os.fspath)

    @staticmethod
    def decode(text: bytes) -> "EngineTask":
        return msgspec.json.decode(text, type=EngineTask, dec_hook=lambda path, value: path(value))


def build_replicas(config: GatewayConfig, on_progress: Progress = SILENT) -> Engine:
    """Raises ConfigError, EngineError."""
    return RoutingEngine(sites_of(config, os.environ), patience_s=config.engine_timeout_s, on_progress=on_progress)


def sites_of(config: GatewayConfig, environment: Mapping[str, str]) -> list[Site]:
    """Raises ConfigError, EngineError."""
    places = config.engine_places
    shared = engine_config(config)
    if not places:
        return [_site(config, _ALONE, shared, {})]
    sites = []
    for name, place in zip(names_of(places), places, strict=True):
        own = config_of_one(shared, len(places), is_gpu=place != CPU)
        visible = {} if place == CPU else {VISIBLE_DEVICES: visible_gpu(int(place), environment.get(VISIBLE_DEVICES))}
        sites.append(_site(config, name, own, visible))
    return sites


def _site(config: GatewayConfig, name: str, engine: EngineConfig, visible: Mapping[str, str]) -> Site:
    task = EngineTask(name, engine, config.log_level, config.log_format, config.log_lines_per_s)
    return Site(name, partial(_launch, name=name, visible=visible), task.encode())


def names_of(places: Sequence[str]) -> list[str]:
    """As logs and metrics have them: cuda:0, cuda:1; a second engine in the same place is cpu.2."""
    return distinct_names([CPU if place == CPU else f"cuda:{place}" for place in places])


def config_of_one(shared: EngineConfig, num_engines: int, *, is_gpu: bool) -> EngineConfig:
    """Divides among so many processes on this machine what each would take of its cores alone."""
    num_cores = num_usable_cores()
    threads, num_encoders = shared.threads, shared.encoder_processes
    if threads is None:
        threads = max(num_cores // num_engines, 1)
    if num_encoders is None and is_gpu:
        num_encoders = min(max(num_cores // 2 // num_engines, 1), _MAX_ENCODER_PROCESSES)
    device = "cuda" if is_gpu else "cpu"
    return dataclasses.replace(shared, device=device, threads=threads, encoder_processes=num_encoders)


def visible_gpu(number: int, visible: str | None) -> str:
    """As CUDA_VISIBLE_DEVICES of an engine process; ours, where it is set, says what the numbers are of."""
    if visible is None:
        return str(number)
    names = [name.strip() for name in visible.split(",") if name.strip()]
    if number >= len(names):
        raise EngineError(f"gpus names GPU {number}, and {VISIBLE_DEVICES} has {len(names)}: {visible!r}")
    return names[number]


def _launch(end: socket.socket, *, name: str, visible: Mapping[str, str]) -> EngineProcess:
    return launched(_MODULE, name, end, visible)
