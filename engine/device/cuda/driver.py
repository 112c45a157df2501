"""What the CUDA driver makes of machine code and matrices: functions and their launches, tensor maps.

By cuda-bindings, NVIDIA's own bindings, which torch's CUDA builds bring along.
"""

import ctypes
from collections.abc import Sequence
from typing import Any

import torch
from cuda.bindings import driver


def load_function(code: bytes, name: str, *, shared_memory_bytes: int) -> Any:
    """In the current context, which keeps it."""
    module = checked(driver.cuModuleLoadData(code))
    function = checked(driver.cuModuleGetFunction(module, name.encode()))
    attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    checked(driver.cuFuncSetAttribute(function, attribute, shared_memory_bytes))
    return function


def is_shared(device: torch.device) -> bool:
    """Whether other processes' kernels run beside ours on it, by MPS. Not, of a driver that does not say."""
    attribute = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MPS_ENABLED
    handle = checked(driver.cuDeviceGet(device.index or 0))
    status, is_enabled = driver.cuDeviceGetAttribute(attribute, handle)
    return status == driver.CUresult.CUDA_SUCCESS and bool(is_enabled)


def tensor_map(matrix: torch.Tensor, num_rows: int, num_splits: int, *, box: int) -> tuple[int, ...]:
    """CUtensorMap's words, of bfloat16: a load is so many rows of a split's columns, `box` of all behind `box` of all.

    Of 64 columns sixteens of bytes are swizzled over eight rows, as ldmatrix reads without conflicts.
    """
    num_all_rows, num_columns = matrix.shape
    num_boxes = num_columns // box
    encoded = checked(
        driver.cuTensorMapEncodeTiled(
            driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
            3,
            matrix.data_ptr(),
            [driver.cuuint64_t(size) for size in (box, num_all_rows, num_boxes)],
            [driver.cuuint64_t(size) for size in (2 * num_columns, 2 * box)],
            [driver.cuuint32_t(size) for size in (box, num_rows, num_boxes // num_splits)],
            [driver.cuuint32_t(1)] * 3,
            driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
            driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
            driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    )
    return tuple(int(word) for word in encoded.opaque)


class Launch:
    """How a function is launched: by so many programs, and perhaps before the end of the kernel in front of it."""

    def __init__(
        self, function: Any, programs: tuple[int, int, int], *, num_threads: int, shared_memory_bytes: int, is_pdl: bool
    ) -> None:
        self._config = driver.CUlaunchConfig()
        self._config.gridDimX, self._config.gridDimY, self._config.gridDimZ = programs
        self._config.blockDimX, self._config.blockDimY, self._config.blockDimZ = num_threads, 1, 1
        self._config.sharedMemBytes = shared_memory_bytes
        if is_pdl:
            overlap = driver.CUlaunchAttribute()
            overlap.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
            overlap.value.programmaticStreamSerializationAllowed = 1
            self._config.attrs, self._config.numAttrs = [overlap], 1
        self._function = function

    def __call__(self, arguments: ctypes.Structure) -> None:
        """On the current stream. The arguments are copied."""
        parameters = (ctypes.c_void_p * 1)(ctypes.addressof(arguments))
        self._config.hStream = torch.cuda.current_stream().cuda_stream
        checked(driver.cuLaunchKernelEx(self._config, self._function, ctypes.addressof(parameters), 0))


def checked(answer: Sequence[Any]) -> Any:
    """What a call of the driver or NVRTC gives beside its status. Raises RuntimeError."""
    status, *rest = answer
    if status.value:
        raise RuntimeError(f"{type(status).__name__}: {status.name}")
    return rest[0] if len(rest) == 1 else tuple(rest)
