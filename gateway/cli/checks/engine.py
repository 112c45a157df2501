"""Checks of what would compute: torch, the GPUs of the configuration, and additions that take a part's place."""

import os
import shutil
import sysconfig
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from voicegate.engine.cores import num_usable_cores
from voicegate.gateway.cli.checks.finding import Finding, Level
from voicegate.gateway.cli.engine_place import WantedDevices, wanted_devices
from voicegate.gateway.cli.model_files import UnfitFile, check_config
from voicegate.gateway.config import CPU, GatewayConfig
from voicegate.gateway.config_fields import ConfigError
from voicegate.gateway.install_command import install_command

if TYPE_CHECKING:
    from voicegate.engine.model.config import ModelConfig

_GIB: Final = 1 << 30


def check_torch(config: GatewayConfig) -> Iterator[Finding]:
    try:
        import torch  # noqa: PLC0415 - takes seconds, and may be what is broken
    except (ImportError, OSError) as error:
        yield _not_importable(Level.FAIL, "torch", error)
        return
    cores = num_usable_cores()
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
    """Checks the GPUs that would be used, and what their kernels need."""
    try:
        import torch  # noqa: PLC0415 - as above

        from voicegate.engine.load.devices import NO_TRITON  # noqa: PLC0415
    except ImportError as error:
        yield _not_importable(Level.FAIL, "engine", error)
        return
    if wanted.is_cpu_alone:
        try:
            name = torch.cuda.get_device_name(0)
        except RuntimeError:
            name = "a GPU that cannot be opened"
        yield Finding(Level.OK, "cuda", f"{name}, not used: {wanted.setting} is {CPU}")
        return
    num_gpus = torch.cuda.device_count()
    for number in wanted.gpus or (0,):  # the current one, as long as nothing has chosen another
        if number < num_gpus:
            try:
                yield _check_memory(config, number, wanted)
            except RuntimeError as error:  # it is opened here
                yield Finding(Level.FAIL, "cuda", _not_opened(number, error))
        else:
            named = "gpus names GPU" if wanted.setting == "gpus" else f"{wanted.text}: there is no GPU"
            yield Finding(Level.FAIL, "cuda", f"{named} {number}, and torch sees {num_gpus}, counted from 0")
    try:
        import triton  # noqa: PLC0415
    except ImportError as error:
        yield Finding(Level.FAIL, "triton", f"cannot be imported ({error}): {NO_TRITON}")
        return
    missing = missing_for_triton()
    level = Level.OK if missing is None else Level.FAIL
    yield Finding(level, "triton", f"{triton.__version__}{'' if missing is None else f': {missing}'}")


def missing_for_triton() -> str | None:
    """Triton compiles a module for Python at each start that finds its cache empty; None: it can."""
    if not (os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")):
        return "it needs a C compiler. `apt-get install gcc` (Debian, Ubuntu)"
    header = Path(sysconfig.get_path("include")) / "Python.h"
    if not header.is_file():
        return f"it needs Python's headers, and {header} is not there. `apt-get install python3-dev` (Debian, Ubuntu)"
    return None


def _check_memory(config: GatewayConfig, number: int, wanted: WantedDevices) -> Finding:
    """Whether the configuration's model, or its part, would find room on this GPU."""
    import torch  # noqa: PLC0415 - as above

    from voicegate.engine.config import REFERENCE_GPU  # noqa: PLC0415
    from voicegate.engine.load.memory import gpu_memories, spare_room, with_layouts_that_fit  # noqa: PLC0415
    from voicegate.gateway.cli.engine_settings import engine_config  # noqa: PLC0415

    free_bytes, total_bytes = torch.cuda.mem_get_info(number)
    named = f"GPU {number}: " if wanted.gpus else ""
    name = torch.cuda.get_device_name(number)
    text = f"{named}{name}, {free_bytes / _GIB:.1f} of {total_bytes / _GIB:.1f} GiB free"
    try:
        resolved = engine_config(config).resolved("cuda", replace(REFERENCE_GPU, memory_bytes=total_bytes))
        model = check_config(config.found_model_dir())
        room = spare_room(resolved)
        resolved = with_layouts_that_fit(resolved, model, room, free_bytes)
        memories = gpu_memories(resolved, model, room)
        needed_bytes = (memories.get("") or memories[f"cuda:{number}"]).least_bytes
    except (ConfigError, UnfitFile):  # told where the model is checked
        needed_bytes = 0
    if free_bytes >= needed_bytes:
        return Finding(Level.OK, "cuda", text)
    remedy = f"at least {needed_bytes / _GIB:.1f} wanted: end what else uses it, or lower max_active_clauses"
    return Finding(Level.WARN, "cuda", f"{text}, {remedy}")


def _not_opened(number: int, error: RuntimeError) -> str:
    reason, *_ = str(error).strip().splitlines() or [type(error).__name__]  # torch has several lines of advice
    return (
        f"GPU {number} cannot be opened ({reason}): nvidia-smi shows whether another process has it to itself, perhaps "
        "a running gateway, and whether the driver is in order"
    )


def check_llm_addition(config: GatewayConfig) -> Finding:
    """Without importing its package, which may start MPI."""
    subject = config.llm_backend.partition("-")[0]
    if config.merged_hf_dir is None:
        return Finding(Level.FAIL, subject, "it needs a checkpoint: --merged-hf-dir")
    try:
        from voicegate.engine.interface import EngineError  # noqa: PLC0415 - as above
        from voicegate.engine.load.devices import choose_device, named_device  # noqa: PLC0415
        from voicegate.engine.load.llm import llm_addition  # noqa: PLC0415
        from voicegate.gateway.cli.engine_settings import engine_config  # noqa: PLC0415
    except (ImportError, OSError) as error:
        return _not_importable(Level.FAIL, "engine", error)
    try:
        wanted, model = engine_config(config), check_config(config.found_model_dir())
        device = choose_device(wanted.device) if wanted.llm_device is None else named_device(wanted.llm_device)
        described = llm_addition(config.llm_backend).check(wanted, model, device)
    except (EngineError, ConfigError, UnfitFile, ValueError, RuntimeError) as error:
        return Finding(Level.FAIL, subject, str(error).partition("\n")[0])
    return Finding(Level.OK, subject, described)


def check_llm_kernel(config: GatewayConfig) -> Iterator[Finding]:
    """Whether C makes the speech LLM's tokens on this CPU; nothing where a start would not try, or fails elsewhere."""
    try:
        from voicegate.engine.interface import EngineError  # noqa: PLC0415 - torch comes with the rest, as above
        from voicegate.engine.llm.cpu.decoder import fits, vectors_of_processor  # noqa: PLC0415
        from voicegate.engine.llm.cpu.library import NoLibrary, load_library  # noqa: PLC0415
        from voicegate.engine.load.devices import choose_device, named_device  # noqa: PLC0415
        from voicegate.engine.load.family import load_weights  # noqa: PLC0415
    except (ImportError, OSError):
        return
    try:
        device = choose_device(config.device) if config.llm_device is None else named_device(config.llm_device)
        vectors = vectors_of_processor()
        if device.type != CPU or vectors is None:
            return
        model_dir = config.found_model_dir()
        model = check_config(model_dir)
        if not fits(model.llm, load_weights(model_dir, model, "llm")):
            return
    except (EngineError, ConfigError, UnfitFile, ValueError, OSError, RuntimeError):
        return
    try:
        load_library()
    except NoLibrary as error:
        remedy = "`apt-get install gcc libc6-dev` (Debian, Ubuntu) brings a compiler"
        text = f"{error}. Without it torch makes tokens, which takes about twice as long; {remedy}"
        yield Finding(Level.WARN, "llm kernel", text)
    else:
        yield Finding(Level.OK, "llm kernel", f"a token is one call of C, with {vectors}")


def check_engines(config: GatewayConfig) -> Iterator[Finding]:
    """Whether other engines than our kernels would be used, where they were asked for or are there."""
    try:
        model_dir = config.found_model_dir()
        model = check_config(model_dir)
    except (ConfigError, UnfitFile):  # told where the model is checked
        return
    is_built = (config.tensorrt_dir or model_dir / "tensorrt").exists()
    for part, backend in (("vocoder", config.vocoder_backend), ("flow", config.flow_backend)):
        if backend == "tensorrt" or (backend == "auto" and is_built):
            yield _check_engines_of(part, config, model, is_wanted=backend == "tensorrt")


def _check_engines_of(part: str, config: GatewayConfig, model: "ModelConfig", *, is_wanted: bool) -> Finding:
    subject, unusable = f"{part} engines", Level.FAIL if is_wanted else Level.WARN
    try:
        from voicegate.engine.interface import EngineError  # noqa: PLC0415 - torch comes with the rest, as above
        from voicegate.engine.load.cosyvoice3 import token2wav_addition  # noqa: PLC0415
        from voicegate.engine.load.devices import choose_device  # noqa: PLC0415
        from voicegate.gateway.cli.engine_settings import engine_config  # noqa: PLC0415
    except (ImportError, OSError) as error:
        return _not_importable(unusable, subject, error)
    try:
        addition = token2wav_addition(_backend_of(part, config))
        if addition is None:  # auto, and none is installed
            return Finding(unusable, subject, "they are there, and nothing that is installed runs them")
        described = addition.usable(part, engine_config(config), model, choose_device(config.device))
    except (EngineError, RuntimeError) as error:  # a GPU that cannot be opened, which was told before
        return Finding(unusable, subject, str(error).partition("\n")[0])
    chosen = "are used" if is_wanted else "are measured against our kernels at the start, and used if quicker"
    return Finding(Level.OK, subject, f"{described}: {chosen}")


def _backend_of(part: str, config: GatewayConfig) -> str:
    return config.vocoder_backend if part == "vocoder" else config.flow_backend


def _not_importable(level: Level, subject: str, error: Exception) -> Finding:
    return Finding(level, subject, f"cannot be imported ({error}): {install_command('server')}")
