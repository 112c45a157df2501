"""NVIDIA's `tensorrt` package, 10.14 to 11: an ONNX file becomes an engine, an engine's work is launched on a stream.

All of its names are here. Networks are strongly typed: precision comes from the file alone, as 11 has it only.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import torch

from voicegate.engine.device.lanes import on_device
from voicegate.engine.interface import EngineError

# NVIDIA's bindings of these were looked at (docs/adr/0016): 10.14, 11.0, 11.4.
LEAST_VERSION: Final = (10, 14)
FIRST_UNKNOWN_VERSION: Final = (12, 0)
INSTALL: Final = "pip install tensorrt-cu13 (or -cu12, as torch's CUDA is), 10.14 or later, before 12"
# For what an engine's kernels need beside its tensors, while they are chosen. Lower -> some are left out.
_WORKSPACE_BYTES: Final = 4 << 30
# Alignment of every address that an engine is given.
ALIGNMENT_BYTES: Final = 256


class TensorrtError(EngineError):
    """The package is not there, or refuses what it was given; the message says which, and its own reasons."""


def load_tensorrt() -> Any:
    """The package, of a version that this module is written for. Raises TensorrtError."""
    try:
        trt = import_module("tensorrt")
    except Exception as error:
        raise TensorrtError(f"tensorrt cannot be imported ({error}): {INSTALL}") from error
    version = str(getattr(trt, "__version__", "unknown"))
    try:
        numbers = tuple(map(int, version.split(".")[:2]))
    except ValueError:
        raise TensorrtError(f"tensorrt {version} is of no version that is known here: {INSTALL}") from None
    if not LEAST_VERSION <= numbers < FIRST_UNKNOWN_VERSION:
        raise TensorrtError(f"tensorrt {version} does not fit: {INSTALL}")
    return trt


@contextmanager
def _starting(trt: Any) -> Iterator[None]:
    """Around what makes its first objects. Raises TensorrtError."""
    try:
        yield
    except TypeError as error:  # of the bindings, for an object that came to be none
        raise TensorrtError(
            f"TensorRT {trt.__version__} does not start on this GPU ({error}; its log says why, mostly another CUDA "
            f"than the driver's): {INSTALL}"
        ) from error


def build_plan(trt: Any, path: Path, *, has_tf32: bool = False) -> Any:
    """The serialized engine of an ONNX file, for the current GPU: something with a buffer. Raises TensorrtError.

    `has_tf32`: products of float32 may be rounded to tf32, which is TensorRT's default.
    """
    logger = trt.Logger(trt.Logger.WARNING)
    with _starting(trt):
        builder = trt.Builder(logger)
        # The flag's place differs: 1 in 10, 0 in 11, which has no other networks and ignores it.
        network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
        parser = trt.OnnxParser(network, logger)
    if not parser.parse_from_file(str(path)):
        reasons = [str(parser.get_error(index)) for index in range(parser.num_errors)]
        raise TensorrtError(f"{path}: TensorRT {trt.__version__} cannot read it: {'; '.join(reasons)}")
    config = builder.create_builder_config()
    config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, _WORKSPACE_BYTES)
    config.max_aux_streams = 0  # everything on the stream that is captured
    if not has_tf32:
        config.clear_flag(trt.BuilderFlag.TF32)
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise TensorrtError(
            f"{path}: TensorRT {trt.__version__} found no kernels for it, or ran out of memory; its log says why"
        )
    return plan


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A named input or output of an engine."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    is_input: bool


class LoadedEngine:
    """An engine on a device. It computes nothing before it is bound."""

    def __init__(self, trt: Any, plan: Any, device: torch.device) -> None:
        """Raises TensorrtError."""
        self._trt = trt
        self.device = device
        with on_device(device):  # the package works on the current GPU
            with _starting(trt):
                self._runtime = trt.Runtime(trt.Logger(trt.Logger.WARNING))  # outlives what it makes
            self._engine = self._runtime.deserialize_cuda_engine(plan)
        if self._engine is None:
            raise TensorrtError(
                "the engine cannot be loaded: it was built by another TensorRT or for another GPU, or there is too "
                "little GPU memory; the log of TensorRT says which"
            )
        self.scratch_bytes = int(self._engine.device_memory_size_v2)
        self.tensors = {name: self._spec(name) for name in self._names()}

    def _names(self) -> list[str]:
        return [self._engine.get_tensor_name(index) for index in range(self._engine.num_io_tensors)]

    def _spec(self, name: str) -> TensorSpec:
        types = self._trt.DataType
        dtypes = {
            types.FLOAT: torch.float32,
            types.HALF: torch.float16,
            types.BF16: torch.bfloat16,
            types.INT32: torch.int32,
        }
        dtype = dtypes.get(self._engine.get_tensor_dtype(name))
        if dtype is None:
            raise TensorrtError(f"the engine's {name} is of a type that nothing here has")
        shape = tuple(self._engine.get_tensor_shape(name))
        return TensorSpec(dtype, shape, self._engine.get_tensor_mode(name) == self._trt.TensorIOMode.INPUT)

    def bind(self, tensors: Mapping[str, torch.Tensor], scratch: torch.Tensor) -> "BoundEngine":
        """`tensors`: for every name, where it lies. `scratch` may be shared by engines that never run at a time.

        Raises TensorrtError.
        """
        if set(tensors) != set(self.tensors):
            raise TensorrtError(f"the engine has {', '.join(sorted(self.tensors))}, not {', '.join(sorted(tensors))}")
        for name, tensor in tensors.items():
            self._check(name, tensor)
        if scratch.nbytes < self.scratch_bytes:
            raise TensorrtError(
                f"the engine wants {self.scratch_bytes} bytes of scratch, and was given {scratch.nbytes}"
            )
        with on_device(self.device):
            strategy = self._trt.ExecutionContextAllocationStrategy.USER_MANAGED
            context = self._engine.create_execution_context(strategy)
            if context is None:
                raise TensorrtError("too little GPU memory for the engine's context")
            context.set_device_memory(scratch.data_ptr(), scratch.nbytes)
            for name, tensor in tensors.items():
                if not context.set_tensor_address(name, tensor.data_ptr()):
                    raise TensorrtError(f"TensorRT takes no address for {name}")
        return BoundEngine(self, context, (*tensors.values(), scratch))

    def _check(self, name: str, tensor: torch.Tensor) -> None:
        """A tensor of another type or layout would be read as what it is not, without a word."""
        spec = self.tensors[name]
        found = (tensor.dtype, tuple(tensor.shape), tensor.device.type)
        wanted = (spec.dtype, spec.shape, self.device.type)
        if found != wanted or not tensor.is_contiguous():
            layout = "" if tensor.is_contiguous() else ", not contiguous"
            raise TensorrtError(f"{name} is {found}{layout}; the engine has {wanted}")
        if self.device.type == "cuda" and tensor.data_ptr() % ALIGNMENT_BYTES:
            raise TensorrtError(f"{name} lies at {tensor.data_ptr():#x}, which is no multiple of {ALIGNMENT_BYTES}")


class BoundEngine:
    """An engine with a place for all that goes in and out: one context, for one CUDA graph."""

    def __init__(self, engine: LoadedEngine, context: Any, kept: tuple[torch.Tensor, ...]) -> None:
        self._engine = engine  # both outlive the graphs that were captured of it
        self._kept = kept
        self._context = context

    def enqueue(self, stream_handle: int) -> None:
        """Not on the default stream: the package would wait for the device. Raises TensorrtError.

        Its first call must not be captured: it does what was put off until shapes and addresses are known.
        """
        if not self._context.execute_async_v3(stream_handle):
            raise TensorrtError("TensorRT could not launch the engine; its log says why")


def current_stream(device: torch.device) -> int:
    """Its handle, for `enqueue`."""
    return int(torch.cuda.current_stream(device).cuda_stream) if device.type == "cuda" else 0
