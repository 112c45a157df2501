"""NVIDIA's `tensorrt` package, 10.14 and 11: an ONNX file becomes an engine, an engine's work is launched on a stream.

Networks are strongly typed: precision comes from the file alone, as 11 has it only. Imported where it is used.
"""

from importlib import import_module
from pathlib import Path
from typing import Any, Final

import torch

# For what an engine's kernels need beside its tensors, while they are chosen. Lower -> some are left out.
_WORKSPACE_BYTES: Final = 4 << 30


class TensorrtError(RuntimeError):
    """The package is not there, or refuses a file; the message says which, and its own reasons."""


def load_tensorrt() -> Any:
    """Raises TensorrtError."""
    try:
        return import_module("tensorrt")
    except Exception as error:
        raise TensorrtError(
            f"tensorrt cannot be imported ({error}): pip install tensorrt-cu12 or -cu13, 10.14 or later"
        ) from error


def build_plan(trt: Any, path: Path) -> Any:
    """The serialized engine of an ONNX file: something with a buffer. Raises TensorrtError."""
    logger = trt.Logger(trt.Logger.WARNING)
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
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise TensorrtError(f"{path}: TensorRT {trt.__version__} found no kernels for it; its log says why")
    return plan


class Session:
    """An engine with tensors of its own for all that goes in and out, by name; they stay where they are."""

    def __init__(self, trt: Any, plan: Any, device: torch.device) -> None:
        """Raises TensorrtError."""
        types = trt.DataType
        dtypes = {types.FLOAT: torch.float32, types.HALF: torch.float16, types.BF16: torch.bfloat16}
        self._runtime = trt.Runtime(trt.Logger(trt.Logger.WARNING))  # outlives what it makes
        self._engine = self._runtime.deserialize_cuda_engine(plan)
        if self._engine is None:
            raise TensorrtError("the engine was built by another TensorRT, or for another GPU")
        self._context = self._engine.create_execution_context()
        if self._context is None:
            raise TensorrtError("too little GPU memory for the engine's context")
        self.tensors: dict[str, torch.Tensor] = {}
        for index in range(self._engine.num_io_tensors):
            name = self._engine.get_tensor_name(index)
            # A tensor of another dtype would be read as what it is not, without a word.
            dtype = dtypes[self._engine.get_tensor_dtype(name)]
            tensor = torch.zeros(tuple(self._engine.get_tensor_shape(name)), dtype=dtype, device=device)
            if not self._context.set_tensor_address(name, tensor.data_ptr()):
                raise TensorrtError(f"TensorRT takes no address for {name}")
            self.tensors[name] = tensor

    def enqueue(self, stream_handle: int) -> None:
        """Not on the default stream: the package would wait for the device. Raises TensorrtError."""
        if not self._context.execute_async_v3(stream_handle):
            raise TensorrtError("TensorRT could not launch the engine; its log says why")
