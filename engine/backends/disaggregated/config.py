"""Which devices a disaggregated engine names, and what goes together. No torch."""

import re
from typing import Final

from voicegate.engine.config import EngineConfig, distinct_names

# Any number of CPUs is the one there is: to try it without GPUs.
CPU: Final = "cpu"
_GPU: Final = re.compile(r"cuda:(0|[1-9][0-9]*)")


def check(config: EngineConfig) -> None:
    """Raises ValueError."""
    llm, token2wavs = config.llm_device, config.token2wav_devices
    if llm is None or not token2wavs:
        names = ("llm_device", "token2wav_devices")
        given, missing = reversed(names) if llm is None else names
        raise ValueError(f"{given} is set and {missing} is not: they go together, such as cuda:0 and cuda:1,cuda:2")
    if config.device != "auto":
        raise ValueError(f"llm_device and device ({config.device}) are both set: llm_device says where the LLM runs")
    for name, device in (("llm_device", llm), *(("token2wav_devices", each) for each in token2wavs)):
        if device != CPU and not _GPU.fullmatch(device):
            raise ValueError(f"{name} names {device!r}; a device is cuda:0, cuda:1, ... or cpu")
    gpus = [device for device in (llm, *token2wavs) if device != CPU]
    if 0 < len(gpus) <= len(token2wavs):
        raise ValueError("llm_device and token2wav_devices mix cpu with GPUs: all are GPUs, or all are cpu")
    if llm in gpus[1:]:
        raise ValueError(f"token2wav_devices names {llm}, which is the LLM's: leave it out, or use device cuda")
    twice = next((device for device in gpus if gpus.count(device) > 1), None)
    if twice is not None:
        raise ValueError(f"token2wav_devices names {twice} twice: a GPU has one token2wav")


def devices_of(config: EngineConfig) -> tuple[str, ...]:
    """The LLM's, then each token2wav's."""
    assert config.llm_device is not None
    return (config.llm_device, *config.token2wav_devices)


def device_names(config: EngineConfig) -> list[str]:
    """Names as logs and metrics have them: the second on cpu is cpu.2."""
    return distinct_names(devices_of(config))
