"""Small ONNX graphs with the inputs, outputs and rates of upstream's encoders."""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FRAMES_PER_TOKEN = 4  # of the 100 Hz log mel


def write_speech_tokenizer(path: Path, *, offset: int = 0, num_extra: int = 0) -> None:
    """feats [1, 128, T], feats_length [1] -> indices [1, T // 4 (+ num_extra)]: every fourth frame's loudest bin."""
    nodes = [
        helper.make_node("ArgMax", ["feats"], ["loudest"], axis=1, keepdims=0),
        helper.make_node("Cast", ["feats_length"], ["length"], to=TensorProto.INT64),
        helper.make_node("Slice", ["loudest", "start", "length", "time", "stride"], ["every_fourth"]),
        helper.make_node("Add", ["every_fourth", "offset"], ["shifted"]),
        helper.make_node("Concat", ["shifted", "extra"], ["indices_64"], axis=1),
        helper.make_node("Cast", ["indices_64"], ["indices"], to=TensorProto.INT32),
    ]
    constants = {
        "start": [FRAMES_PER_TOKEN - 1],
        "time": [1],
        "stride": [FRAMES_PER_TOKEN],
        "offset": [offset],
        "extra": np.zeros((1, num_extra)),
    }
    _save(
        path,
        nodes,
        [("feats", TensorProto.FLOAT, [1, 128, "T"]), ("feats_length", TensorProto.INT32, [1])],
        ("indices", TensorProto.INT32, [1, "N"]),
        constants,
    )


def write_speaker_encoder(path: Path, *, dim: int = 192) -> None:
    """input [1, T, 80] -> output [1, dim]: the spread of each bin, repeated."""
    nodes = [
        helper.make_node("Mul", ["input", "input"], ["squares"]),
        helper.make_node("ReduceMean", ["squares", "over_time"], ["spread"], keepdims=0),
        helper.make_node("Concat", ["spread", "spread", "spread"], ["repeated"], axis=1),
        helper.make_node("Slice", ["repeated", "start", "end", "bins"], ["output"]),
    ]
    constants = {"over_time": [1], "start": [0], "end": [dim], "bins": [1]}
    _save(path, nodes, [("input", TensorProto.FLOAT, [1, "T", 80])], ("output", TensorProto.FLOAT, [1, dim]), constants)


def _save(
    path: Path,
    nodes: list[onnx.NodeProto],
    inputs: list[tuple[str, int, list[int | str]]],
    output: tuple[str, int, list[int | str]],
    constants: dict[str, object],
) -> None:
    graph = helper.make_graph(
        nodes,
        path.stem,
        [helper.make_tensor_value_info(*description) for description in inputs],
        [helper.make_tensor_value_info(*output)],
        [numpy_helper.from_array(np.asarray(value, np.int64), name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    onnx.checker.check_model(model)
    onnx.save(model, path)
