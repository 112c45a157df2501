"""The stand-in package with onnxruntime behind it: engines compute, on a CPU, where their addresses point.

Its plans are ONNX files, behind a line that says which version made them: another one refuses to load them.
"""

import ctypes
from functools import lru_cache
from typing import Any

import numpy as np
import onnx
import onnxruntime

from tests.support.tensorrt.package import Object, OnObject, Package, made
from voicegate.engine.backends.tensorrt.graph import DTYPES, Array

_DATA_TYPES = {
    onnx.TensorProto.FLOAT: "FLOAT",
    onnx.TensorProto.FLOAT16: "HALF",
    onnx.TensorProto.BFLOAT16: "BF16",
    onnx.TensorProto.INT32: "INT32",
}
_NUMPY = dict(DTYPES.values())


def computing_package(version: str) -> Package:
    package = Package(version)
    package.answers |= {
        "OnnxParser.parse_from_file": OnObject(_parse),
        "Builder.build_serialized_network": OnObject(_serialize),
        "Runtime.deserialize_cuda_engine": OnObject(_deserialize),
        "ICudaEngine.num_io_tensors": OnObject(lambda engine: len(_io(engine))),
        "ICudaEngine.get_tensor_name": OnObject(lambda engine, index: list(_io(engine))[index]),
        "ICudaEngine.get_tensor_shape": OnObject(lambda engine, name: _shape(_io(engine)[name])),
        "ICudaEngine.get_tensor_dtype": OnObject(_dtype),
        "ICudaEngine.get_tensor_mode": OnObject(_mode),
        "ICudaEngine.create_execution_context": OnObject(_context),
        "IExecutionContext.set_device_memory": OnObject(_lend),
        "IExecutionContext.set_tensor_address": OnObject(_place),
        "IExecutionContext.execute_async_v3": OnObject(_execute),
    }
    return package


def _parse(parser: Object, path: str) -> bool:
    network = parser.arguments[0]
    network.hidden["model"] = onnx.load(path).SerializeToString()
    return True


def _serialize(builder: Object, network: Object, config: Object) -> bytes:
    model: bytes = network.hidden["model"]
    return f"{builder.package.__version__}\n".encode() + model


def _deserialize(runtime: Object, plan: bytes) -> Object | None:
    version, _, content = bytes(plan).partition(b"\n")
    if version.decode() != runtime.package.__version__:
        return None
    model = onnx.load_from_string(content)
    return made(runtime.package, "ICudaEngine", model=model, session=_session(content))


@lru_cache(maxsize=8)
def _session(content: bytes) -> onnxruntime.InferenceSession:
    """To look for a faster order of so many nodes takes longer than to compute them."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def _context(engine: Object, strategy: Any) -> Object:
    assert strategy == engine.package.ExecutionContextAllocationStrategy.USER_MANAGED
    return made(engine.package, "IExecutionContext", engine=engine, places={})


def _place(context: Object, name: str, address: int) -> bool:
    context.hidden["places"][name] = address
    return True


def _lend(context: Object, address: int, num_bytes: int) -> None:
    assert num_bytes >= context.hidden["engine"].device_memory_size_v2
    context.hidden["scratch"] = address


def _execute(context: Object, stream_handle: int) -> bool:
    engine, places = context.hidden["engine"], context.hidden["places"]
    assert set(places) == set(_io(engine)), "not every tensor has an address"
    assert context.hidden["scratch"], "what the user manages, the user gives"
    inputs = {each.name: _memory(each, places[each.name]).copy() for each in engine.hidden["model"].graph.input}
    outputs = engine.hidden["model"].graph.output
    found = engine.hidden["session"].run([each.name for each in outputs], inputs)
    for each, numbers in zip(outputs, found, strict=True):
        _memory(each, places[each.name])[...] = numbers
    return True


def _io(engine: Object) -> dict[str, onnx.ValueInfoProto]:
    graph = engine.hidden["model"].graph
    return {each.name: each for each in (*graph.input, *graph.output)}


def _shape(value: onnx.ValueInfoProto) -> tuple[int, ...]:
    return tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)


def _dtype(engine: Object, name: str) -> Any:
    return engine.package.DataType[_DATA_TYPES[_io(engine)[name].type.tensor_type.elem_type]]


def _mode(engine: Object, name: str) -> Any:
    inputs = {each.name for each in engine.hidden["model"].graph.input}
    return engine.package.TensorIOMode["INPUT" if name in inputs else "OUTPUT"]


def _memory(value: onnx.ValueInfoProto, address: int) -> Array:
    dtype, shape = _NUMPY[value.type.tensor_type.elem_type], _shape(value)
    num_bytes = int(np.prod(shape)) * dtype.itemsize
    return np.frombuffer((ctypes.c_uint8 * num_bytes).from_address(address), dtype).reshape(shape)
