"""decode_step.cu to a function of the device: compiled by NVRTC for a model's sizes, and what else the driver makes.

cuda-bindings, which torch's CUDA builds bring along: NVIDIA's own bindings of NVRTC and the driver.
"""

import ctypes
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from cuda.bindings import driver, nvrtc
from triton.runtime.cache import get_cache_manager

from voicegate.engine.llm.cuda.resident.plan import BOX

_FOLDER = Path(__file__).with_name("kernel")
_SOURCE = "decode_step.cu"
_CODE = "decode_step.cubin"


class KernelNotCompiled(RuntimeError):
    """With NVRTC's log."""


def compile_kernel(sizes: Mapping[str, int | str], *, capability: tuple[int, int]) -> bytes:
    """The machine code for a device of this capability, kept where Triton keeps that of its kernels.

    Raises KernelNotCompiled, and RuntimeError for all else.
    """
    source = (_FOLDER / _SOURCE).read_bytes()
    headers = {header.name.encode(): header.read_bytes() for header in sorted(_FOLDER.glob("*.cuh"))}
    options = ["--gpu-architecture=sm_{}{}a".format(*capability), "--std=c++17"]
    options += [f"-D{name}={value}" for name, value in sizes.items()]
    encoded = [option.encode() for option in options]
    version = "{}.{}".format(*checked(nvrtc.nvrtcVersion())).encode()
    # Triton's manager makes a folder of the key's name.
    key = hashlib.sha256(b"\0".join((version, source, *headers, *headers.values(), *encoded))).hexdigest()
    kept = get_cache_manager(key)
    path = kept.get_file(_CODE)
    if path is not None:
        return Path(path).read_bytes()
    code = _compile(source, headers, encoded)
    kept.put(code, _CODE, binary=True)
    return code


def _compile(source: bytes, headers: Mapping[bytes, bytes], options: list[bytes]) -> bytes:
    program = checked(
        nvrtc.nvrtcCreateProgram(source, _SOURCE.encode(), len(headers), list(headers.values()), list(headers))
    )
    if nvrtc.nvrtcCompileProgram(program, len(options), options)[0] != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        log = b" " * checked(nvrtc.nvrtcGetProgramLogSize(program))  # written in place
        checked(nvrtc.nvrtcGetProgramLog(program, log))
        raise KernelNotCompiled(f"{_SOURCE} does not compile: {log.decode(errors='replace')}")
    code: bytes = b" " * checked(nvrtc.nvrtcGetCUBINSize(program))
    checked(nvrtc.nvrtcGetCUBIN(program, code))
    return code


def load_function(code: bytes, *, shared_memory_bytes: int) -> Any:
    """In the current context, which keeps it."""
    module = checked(driver.cuModuleLoadData(code))
    function = checked(driver.cuModuleGetFunction(module, b"decode_step"))
    attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    checked(driver.cuFuncSetAttribute(function, attribute, shared_memory_bytes))
    return function


def is_shared(device: torch.device) -> bool:
    """Whether other processes' kernels run beside ours on it, by MPS. Not, of a driver that does not say."""
    attribute = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MPS_ENABLED
    handle = checked(driver.cuDeviceGet(device.index or 0))
    status, is_enabled = driver.cuDeviceGetAttribute(attribute, handle)
    return status == driver.CUresult.CUDA_SUCCESS and bool(is_enabled)


def tensor_map(matrix: torch.Tensor, num_rows: int, num_splits: int) -> tuple[int, ...]:
    """CUtensorMap's words, of bfloat16: a load is so many rows of a split's columns, 64 of all behind 64 of all.

    In shared memory their sixteens of bytes are swizzled over eight rows, as ldmatrix reads without conflicts.
    """
    num_all_rows, num_columns = matrix.shape
    num_boxes = num_columns // BOX
    encoded = checked(
        driver.cuTensorMapEncodeTiled(
            driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
            3,
            matrix.data_ptr(),
            [driver.cuuint64_t(size) for size in (BOX, num_all_rows, num_boxes)],
            [driver.cuuint64_t(size) for size in (2 * num_columns, 2 * BOX)],
            [driver.cuuint32_t(size) for size in (BOX, num_rows, num_boxes // num_splits)],
            [driver.cuuint32_t(1)] * 3,
            driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
            driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
            driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    )
    return tuple(int(word) for word in encoded.opaque)


class Launch:
    """A function with its arguments, which may begin before the end of the kernel in front of it."""

    def __init__(
        self,
        function: Any,
        arguments: ctypes.Structure,
        *,
        num_programs: int,
        num_threads: int,
        shared_memory_bytes: int,
    ) -> None:
        overlap = driver.CUlaunchAttribute()
        overlap.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        overlap.value.programmaticStreamSerializationAllowed = 1
        self._config = driver.CUlaunchConfig()
        self._config.gridDimX, self._config.gridDimY, self._config.gridDimZ = num_programs, 1, 1
        self._config.blockDimX, self._config.blockDimY, self._config.blockDimZ = num_threads, 1, 1
        self._config.sharedMemBytes = shared_memory_bytes
        self._config.attrs, self._config.numAttrs = [overlap], 1
        self._function, self._arguments = function, arguments
        self._parameters = (ctypes.c_void_p * 1)(ctypes.addressof(arguments))

    def __call__(self) -> None:
        """On the current stream."""
        self._config.hStream = torch.cuda.current_stream().cuda_stream
        checked(driver.cuLaunchKernelEx(self._config, self._function, ctypes.addressof(self._parameters), 0))


def checked(answer: Sequence[Any]) -> Any:
    """What a call of the driver or NVRTC gives beside its status. Raises RuntimeError."""
    status, *rest = answer
    if status.value:
        raise RuntimeError(f"{type(status).__name__}: {status.name}")
    return rest[0] if len(rest) == 1 else tuple(rest)
