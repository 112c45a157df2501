"""Whether the engine has a process of its own, beside the sockets' (docs/adr/0024). No torch.

Event loop and engine then do not share Python's lock, which is worth more than the way between them where a GPU is fed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from voicegate.engine.config import EngineConfig
from voicegate.gateway.config import CPU, GatewayConfig, listed
from voicegate.gateway.config_fields import ConfigError


@dataclass(frozen=True, slots=True)
class WantedDevices:
    setting: str  # that says where the engine runs
    text: str  # what it says
    gpus: tuple[int, ...] = ()
    is_cpu_alone: bool = False


def wanted_devices(config: GatewayConfig) -> WantedDevices:
    """Raises ValueError for devices that do not go together."""
    if config.engine_places:
        gpus = sorted({int(place) for place in config.engine_places if place != CPU})
        return WantedDevices("gpus", f"gpus is {config.gpus}", tuple(gpus), is_cpu_alone=not gpus)
    token2wavs = listed(config.token2wav_devices)
    engine = EngineConfig(Path(), config.device, llm_device=config.llm_device, token2wav_devices=token2wavs)
    if engine.llm_device is None:
        return WantedDevices("device", f"device is {config.device}", is_cpu_alone=config.device == CPU)
    names = (engine.llm_device, *token2wavs)
    numbers = tuple(int(name.removeprefix("cuda:")) for name in names if name != CPU)
    text = f"llm_device is {config.llm_device} and token2wav_devices is {config.token2wav_devices}"
    return WantedDevices("llm_device", text, numbers, is_cpu_alone=not numbers)


VISIBLE_DEVICES: Final = "CUDA_VISIBLE_DEVICES"
_DEVICES: Final = ("nvidia[0-9]*", "dxg")  # below /dev: Linux, and Linux beside Windows


def has_engine_processes(config: GatewayConfig, environment: Mapping[str, str], devices: Path = Path("/dev")) -> bool:
    """Whether `voicegate serve` has engine processes. Raises ConfigError for devices that do not go together."""
    if config.engine_places or config.engine_process == "own":
        return True
    if config.engine_process == "shared":
        return False
    try:
        wanted = wanted_devices(config)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    if wanted.is_cpu_alone:
        return False
    return config.device == "cuda" or bool(wanted.gpus) or _has_gpu(environment, devices)


def _has_gpu(environment: Mapping[str, str], devices: Path) -> bool:
    """A guess, in place of what a driver would say: a process for an engine that then finds none does no harm."""
    visible = environment.get(VISIBLE_DEVICES)
    if visible is not None and visible.strip() in ("", "-1"):
        return False
    return any(True for pattern in _DEVICES for _ in devices.glob(pattern))
