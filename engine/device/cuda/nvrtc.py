"""A kernel in CUDA C++ to machine code, by NVRTC, which torch's CUDA builds bring along (cuda-bindings)."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

from cuda.bindings import nvrtc
from triton.runtime.cache import get_cache_manager

from voicegate.engine.device.cuda.driver import checked


class KernelNotCompiled(RuntimeError):
    """With NVRTC's log."""


def compile_kernel(source: Path, macros: Mapping[str, int | str], *, capability: tuple[int, int]) -> bytes:
    """The machine code for a device of this capability, kept where Triton keeps that of its kernels.

    Beside the source are its headers (*.cuh). Raises KernelNotCompiled, and RuntimeError for all else.
    """
    text = source.read_bytes()
    headers = {header.name.encode(): header.read_bytes() for header in sorted(source.parent.glob("*.cuh"))}
    options = ["--gpu-architecture=sm_{}{}a".format(*capability), "--std=c++17"]
    options += [f"-D{name}={value}" for name, value in macros.items()]
    encoded = [option.encode() for option in options]
    version = "{}.{}".format(*checked(nvrtc.nvrtcVersion())).encode()
    # Triton's manager makes a folder of the key's name.
    key = hashlib.sha256(b"\0".join((version, text, *headers, *headers.values(), *encoded))).hexdigest()
    kept, name = get_cache_manager(key), f"{source.stem}.cubin"
    path = kept.get_file(name)
    if path is not None:
        return Path(path).read_bytes()
    code = _compile(source.name, text, headers, encoded)
    kept.put(code, name, binary=True)
    return code


def _compile(name: str, text: bytes, headers: Mapping[bytes, bytes], options: list[bytes]) -> bytes:
    program = checked(
        nvrtc.nvrtcCreateProgram(text, name.encode(), len(headers), list(headers.values()), list(headers))
    )
    if nvrtc.nvrtcCompileProgram(program, len(options), options)[0] != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        log = b" " * checked(nvrtc.nvrtcGetProgramLogSize(program))  # written in place
        checked(nvrtc.nvrtcGetProgramLog(program, log))
        raise KernelNotCompiled(f"{name} does not compile: {log.decode(errors='replace')}")
    code: bytes = b" " * checked(nvrtc.nvrtcGetCUBINSize(program))
    checked(nvrtc.nvrtcGetCUBIN(program, code))
    return code
