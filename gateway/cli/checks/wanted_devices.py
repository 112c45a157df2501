"""The devices that a configuration names by number: of engine processes, or of a disaggregated engine. No torch."""

from dataclasses import dataclass
from pathlib import Path

from voicegate.engine.config import EngineConfig
from voicegate.gateway.config import CPU, GatewayConfig, listed


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
