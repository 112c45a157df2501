"""`voicegate doctor`: what could keep the gateway from running here, each with what to do about it."""

import argparse
import http.client
import os
import socket
import ssl
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, Final

from voicegate.clients.python.decode import check_opus
from voicegate.clients.python.errors import MissingDependency
from voicegate.clients.python.playback import find_sound_device
from voicegate.engine.model.config import ModelConfig
from voicegate.gateway.cli.cores import shared_cores
from voicegate.gateway.cli.extras import INSTALL_SERVER
from voicegate.gateway.cli.model_files import (
    UnfitFile,
    check_config,
    check_tokenizer,
    check_voice,
    check_weights,
    unmade_pairs,
)
from voicegate.gateway.cli.terminal import say
from voicegate.gateway.cli.wanted_devices import WantedDevices, wanted_devices
from voicegate.gateway.config import CPU, GatewayConfig, from_environment
from voicegate.gateway.config_fields import ConfigError
from voicegate.gateway.server.descriptors import FileLimits, file_limits

_PYTHONS: Final = ((3, 11), (3, 12))  # of pyproject.toml
_PROBE_TIMEOUT_S: Final = 1.0
_GIB: Final = 1 << 30
# What can be said on the command line instead of in the environment.
_SETTINGS: Final = (
    "model_dir",
    "port",
    "device",
    "gpus",
    "llm_device",
    "token2wav_devices",
    "llm_backend",
    "merged_hf_dir",
    "vocoder_backend",
    "vocoder_precision",
    "tensorrt_dir",
)


class Level(Enum):
    OK = "ok"
    WARN = "warn"  # the gateway runs, something beside it does not
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    level: Level
    subject: str
    text: str


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "doctor",
        help="check this machine",
        description="Check what the gateway needs. Exit status 1 where it cannot run.",
        allow_abbrev=False,
    )
    parser.add_argument("--model-dir", type=Path, help="(default: the model that `voicegate serve` would serve)")
    parser.add_argument("--port", help="that it would listen on")
    parser.add_argument("--device", metavar="auto|cpu|cuda", help="where the engine would run")
    parser.add_argument("--gpus", metavar="0,1,...", help="where engine processes would run")
    parser.add_argument("--llm-device", metavar="cuda:0", help="where the speech LLM alone would run")
    parser.add_argument("--token2wav-devices", metavar="cuda:1,...", help="where a flow and a vocoder each would run")
    parser.add_argument("--llm-backend", metavar="NAME", help="what would run the speech LLM")
    parser.add_argument("--merged-hf-dir", metavar="DIR", type=Path, help="for tensorrt-llm: its checkpoint")
    parser.add_argument("--vocoder-backend", metavar="NAME", help="what would run the vocoder")
    parser.add_argument("--vocoder-precision", metavar="NAME", help="of what its engines are")
    parser.add_argument("--tensorrt-dir", metavar="DIR", type=Path, help="for tensorrt: its engines")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    config = from_environment(os.environ, {name: getattr(options, name) for name in _SETTINGS})
    worst = Level.OK
    for finding in examine(config):
        say(f"{finding.level.value:<5} {finding.subject:<11} {finding.text}")
        if finding.level is Level.FAIL:
            worst = Level.FAIL
    return 1 if worst is Level.FAIL else 0


def examine(config: GatewayConfig) -> Iterator[Finding]:
    """In the order in which a user would have to put things right."""
    yield check_python(sys.version_info[:2])
    yield check_libopus()
    yield from check_torch(config)
    if config.llm_backend == "tensorrt-llm":
        yield check_tensorrt_llm(config)
    yield from check_vocoder(config)
    yield check_cores()
    try:
        yield from check_model(config.found_model_dir(), config.voices_dir)
    except ConfigError as error:
        yield Finding(Level.FAIL, "model", str(error))
    yield check_port(config.host, config.port)
    yield check_open_files(config.max_sockets, file_limits())
    yield check_sound()


def check_python(version: tuple[int, ...]) -> Finding:
    shown = ".".join(map(str, version))
    if version in _PYTHONS:
        return Finding(Level.OK, "python", shown)
    wanted = " or ".join(".".join(map(str, python)) for python in _PYTHONS)
    return Finding(Level.FAIL, "python", f"{shown} is not supported: make a virtual environment with Python {wanted}")


def check_libopus() -> Finding:
    try:
        return Finding(Level.OK, "libopus", check_opus())
    except MissingDependency as error:
        return Finding(Level.FAIL, "libopus", str(error))


def check_cores() -> Finding:
    shared = shared_cores()
    if shared is None:
        return Finding(Level.OK, "cores", "nothing else that computes was seen: they are its own")
    return Finding(Level.WARN, "cores", shared)


def check_torch(config: GatewayConfig) -> Iterator[Finding]:
    try:
        import torch  # noqa: PLC0415 - takes seconds, and may be what is broken
    except (ImportError, OSError) as error:
        yield Finding(Level.FAIL, "torch", f"cannot be imported ({error}): {INSTALL_SERVER}")
        return
    cores = os.cpu_count() or 1
    threads = config.threads or cores
    if threads > cores:
        text = f"{torch.__version__}, {threads} threads on {cores} cores: fewer are faster, set threads to {cores}"
        yield Finding(Level.WARN, "torch", text)
    else:
        yield Finding(Level.OK, "torch", f"{torch.__version__}, {threads} threads on {cores} cores")
    try:
        wanted = wanted_devices(config)
    except ValueError as error:
        yield Finding(Level.FAIL, "devices", str(error))
        return
    if torch.cuda.is_available():
        yield from _check_gpu(config, wanted)
    elif config.device == "cuda" or wanted.gpus:
        named = "device is cuda" if config.device == "cuda" else wanted.text
        text = f"{named}, and torch sees none: install a driver and a torch for CUDA, or use device cpu"
        yield Finding(Level.FAIL, "cuda", text)
    else:
        yield Finding(Level.OK, "cuda", "none; models run on the CPU")


def _check_gpu(config: GatewayConfig, wanted: WantedDevices) -> Iterator[Finding]:
    """Of a machine with one: those that would be used, and what their kernels need."""
    try:
        import torch  # noqa: PLC0415 - as above

        from voicegate.engine.loading.devices import NO_TRITON  # noqa: PLC0415
    except ImportError as error:
        yield Finding(Level.FAIL, "engine", f"cannot be imported ({error}): {INSTALL_SERVER}")
        return
    if wanted.is_cpu_alone:
        yield Finding(Level.OK, "cuda", f"{torch.cuda.get_device_name(0)}, not used: {wanted.setting} is {CPU}")
        return
    num_gpus = torch.cuda.device_count()
    for number in wanted.gpus or (torch.cuda.current_device(),):
        if number < num_gpus:
            yield _check_memory(config, number, wanted)
        else:
            named = "gpus names GPU" if wanted.setting == "gpus" else f"{wanted.text}: there is no GPU"
            yield Finding(Level.FAIL, "cuda", f"{named} {number}, and torch sees {num_gpus}, counted from 0")
    try:
        import triton  # noqa: PLC0415
    except ImportError as error:
        yield Finding(Level.FAIL, "triton", f"cannot be imported ({error}): {NO_TRITON}")
    else:
        yield Finding(Level.OK, "triton", triton.__version__)


def _check_memory(config: GatewayConfig, number: int, wanted: WantedDevices) -> Finding:
    """Whether the configuration's model, or its part, would find room on this GPU."""
    import torch  # noqa: PLC0415 - as above

    from voicegate.engine.config import REFERENCE_GPU  # noqa: PLC0415
    from voicegate.engine.loading.memory import gpu_memory, memory_apart, spare_room  # noqa: PLC0415
    from voicegate.gateway.cli.engine_settings import engine_config  # noqa: PLC0415

    free_bytes, total_bytes = torch.cuda.mem_get_info(number)
    named = f"GPU {number}: " if wanted.gpus else ""
    name = torch.cuda.get_device_name(number)
    text = f"{named}{name}, {free_bytes / _GIB:.1f} of {total_bytes / _GIB:.1f} GiB free"
    try:
        resolved = engine_config(config).resolved("cuda", replace(REFERENCE_GPU, memory_bytes=total_bytes))
        model = check_config(config.found_model_dir())
        if resolved.is_disaggregated:
            of_llm, of_token2wav = memory_apart(resolved, model, spare_room(resolved))
            memory = of_llm if resolved.llm_device == f"cuda:{number}" else of_token2wav
        else:
            memory = gpu_memory(resolved, model, spare_room(resolved))
        needed_bytes = memory.least_bytes
    except (ConfigError, UnfitFile):  # told where the model is checked
        needed_bytes = 0
    if free_bytes >= needed_bytes:
        return Finding(Level.OK, "cuda", text)
    remedy = f"at least {needed_bytes / _GIB:.1f} wanted: end what else uses it, or lower max_active_clauses"
    return Finding(Level.WARN, "cuda", f"{text}, {remedy}")


def check_tensorrt_llm(config: GatewayConfig) -> Finding:
    """Without importing it, which would start MPI."""
    try:
        from voicegate.engine.interface import EngineError  # noqa: PLC0415 - torch comes with the rest, as above
        from voicegate.engine.llm.tensorrt_llm.checkpoint import read_vocabulary  # noqa: PLC0415
        from voicegate.engine.llm.tensorrt_llm.requirements import check_requirements  # noqa: PLC0415
        from voicegate.engine.loading.devices import choose_device  # noqa: PLC0415
    except (ImportError, OSError) as error:
        return Finding(Level.FAIL, "engine", f"cannot be imported ({error}): {INSTALL_SERVER}")
    if config.merged_hf_dir is None:
        return Finding(Level.FAIL, "tensorrt", "it needs a checkpoint: --merged-hf-dir")
    try:
        version = check_requirements(choose_device(config.device))
        read_vocabulary(config.merged_hf_dir, check_config(config.found_model_dir()).llm)
    except (EngineError, ConfigError, UnfitFile, ValueError) as error:
        return Finding(Level.FAIL, "tensorrt", str(error))
    return Finding(Level.OK, "tensorrt", f"{version}, {config.merged_hf_dir}")


def check_vocoder(config: GatewayConfig) -> Iterator[Finding]:
    """Whether TensorRT's engines would be used, where they were asked for or are there."""
    try:
        model_dir = config.found_model_dir()
        model = check_config(model_dir)
    except (ConfigError, UnfitFile):  # told where the model is checked
        return
    is_wanted = config.vocoder_backend == "tensorrt"
    is_built = (config.tensorrt_dir or model_dir / "tensorrt").exists()
    if config.vocoder_backend == "cuda" or not (is_wanted or is_built):
        return
    unusable = Level.FAIL if is_wanted else Level.WARN
    try:
        from voicegate.engine.interface import EngineError  # noqa: PLC0415 - torch comes with the rest, as above
        from voicegate.engine.loading.devices import choose_device  # noqa: PLC0415
        from voicegate.engine.loading.vocoder_engines import usable_engines  # noqa: PLC0415
        from voicegate.gateway.cli.engine_settings import engine_config  # noqa: PLC0415
    except (ImportError, OSError) as error:
        yield Finding(unusable, "engines", f"cannot be imported ({error}): {INSTALL_SERVER}")
        return
    try:
        described = usable_engines(engine_config(config), model, choose_device(config.device))
    except EngineError as error:
        yield Finding(unusable, "engines", str(error))
        return
    chosen = "are used" if is_wanted else "are measured against our kernels at the start, and used if quicker"
    yield Finding(Level.OK, "engines", f"{described}: {chosen}")


def check_model(model_dir: Path, voices_dir: Path | None = None) -> Iterator[Finding]:
    try:
        model = check_config(model_dir)
    except UnfitFile as error:
        yield Finding(Level.FAIL, "model", f"{error}; choose another with --model-dir")
        return
    yield Finding(Level.OK, "model", f"{model.name} in {model_dir}")
    yield _file("tokenizer", partial(check_tokenizer, model_dir))
    for part in ("llm", "flow", "vocoder"):
        yield _file(part, partial(check_weights, model_dir, model, part))
    yield from _check_voices(model_dir, voices_dir, model)


def _check_voices(model_dir: Path, voices_dir: Path | None, model: ModelConfig) -> Iterator[Finding]:
    """As `serve` will find them: the user's win over the model's, and pairs become voices at the start."""
    if voices_dir is not None and not voices_dir.is_dir():
        text = f"{voices_dir} is no directory: make it, or leave out the directory of voices"
        yield Finding(Level.FAIL, "voices", text)
        voices_dir = None
    directories = [model_dir / "voices", *([voices_dir] if voices_dir is not None else [])]
    made = {path.stem: path for directory in directories for path in sorted(directory.glob("*.safetensors"))}
    pairs = unmade_pairs(directories)
    if not made and not pairs:
        where = " and ".join(map(str, directories))
        text = f"no voice (*.safetensors) in {where}: see `voicegate voices add --help`"
        yield Finding(Level.FAIL, "voices", text)
        return
    for path in made.values():
        yield _file("voice", partial(_describe_voice, path, model))
    for path in pairs:
        yield Finding(Level.OK, "voice", f"{path.stem}: is made of {path} and its text when the gateway starts")
    if model.default_voice is not None and model.default_voice not in {*made, *(path.stem for path in pairs)}:
        text = f"model.json names the default voice {model.default_voice!r}, which is not there"
        yield Finding(Level.FAIL, "voices", text)


def check_port(host: str, port: int) -> Finding:
    where = f"{host}:{port}"
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        if _is_gateway(http.client.HTTPConnection(host, port, timeout=_PROBE_TIMEOUT_S)) or _is_gateway(
            http.client.HTTPSConnection(host, port, timeout=_PROBE_TIMEOUT_S, context=_trusting())
        ):
            return Finding(Level.OK, "port", f"{where} is in use by a running voicegate")
        return Finding(Level.FAIL, "port", f"{where}: {error.strerror or error}; choose another with --port")
    return Finding(Level.OK, "port", f"{where} is free")


def check_open_files(max_sockets: int, limits: FileLimits) -> Finding:
    """`serve` raises the soft limit by itself."""
    raised = limits.raised_for(max_sockets)
    room = raised.room_for(max_sockets)
    shown = "no limit" if raised.soft is None else f"at most {raised.soft}"
    if room == max_sockets:
        return Finding(Level.OK, "open files", f"{shown}; room for {room} sockets")
    level, text = (Level.WARN, f"room for {room} of {max_sockets} sockets") if room else (Level.FAIL, "no room for any")
    return Finding(level, "open files", f"{shown}; {text}: raise the hard limit (ulimit -Hn, LimitNOFILE=)")


def check_sound() -> Finding:
    try:
        return Finding(Level.OK, "sound", find_sound_device())
    except MissingDependency as error:
        return Finding(Level.WARN, "sound", f"{error}; only `voicegate say` without -o needs it")


def _file(subject: str, check: Callable[[], str]) -> Finding:
    try:
        return Finding(Level.OK, subject, check())
    except UnfitFile as error:
        return Finding(Level.FAIL, subject, str(error))


def _describe_voice(path: Path, model: ModelConfig) -> str:
    return f"{path.stem}: {check_voice(path, model)}"


def _trusting() -> ssl.SSLContext:
    """It only asks who is there."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _is_gateway(connection: http.client.HTTPConnection) -> bool:
    try:
        connection.request("GET", "/healthz")
        return (connection.getresponse().getheader("Server") or "").startswith("voicegate/")
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
