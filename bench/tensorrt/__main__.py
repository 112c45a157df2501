"""TensorRT in place of our kernels, for the flow's Euler step and the vocoder: worth it or not?

    python -m voicegate.bench.tensorrt export --model DIR --out ONNX_DIR    # the graphs alone, on any machine
    python -m voicegate.bench.tensorrt measure --json FILE                  # a GPU and the tensorrt package

`measure` builds engines of the released sizes (random weights) and compares them with float32 on the CPU.
The vocoder's whole calls, and the flow's batches of a block or two, run where `voicegate serve` has them, in CUDA
graphs beside ours. Larger batches' Euler steps run alone, and leave out what TensorRT would need on top: our kernels
read finished blocks where they lie, an engine wants each stream's in one piece (docs/adr/0016).
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import onnx
import torch

from voicegate.bench import environment, results_file
from voicegate.engine.backends.tensorrt import graph
from voicegate.engine.backends.tensorrt.flow.shape import ENGINE_SHAPES, FlowShape
from voicegate.engine.backends.tensorrt.flow.step_graph import flow_step_model
from voicegate.engine.backends.tensorrt.library import LoadedEngine, TensorrtError, build_plan, load_tensorrt
from voicegate.engine.backends.tensorrt.single_engine import SingleEngine
from voicegate.engine.backends.tensorrt.vocoder.filter_graph import filter_model
from voicegate.engine.backends.tensorrt.wanted import filter_shapes
from voicegate.engine.flow.chunking import FRAMES_PER_BLOCK
from voicegate.engine.flow.model import FlowModel
from voicegate.engine.model.model_json import load_model_config
from voicegate.engine.model.weights import load_state_dict
from voicegate.engine.vocoder.cuda.config import VocoderCudaConfig
from voicegate.engine.vocoder.weights import load_vocoder_weights

_CPU: Final = torch.device("cpu")
_CUDA: Final = torch.device("cuda")
# As the engine computes by default.
FLOW_LOW: Final = "bfloat16"
FLOW_SHAPES: Final = tuple(FlowShape(rows, FRAMES_PER_BLOCK, 450) for rows in (1, 8, 34))  # of steps alone
VOCODER: Final = VocoderCudaConfig(precision="float16", batch_buckets=(1, 8, 32), frame_buckets=(20, 56))
_NUM_RUNS: Final = 30


def export(model_dir: Path, out: Path, low: str | None) -> list[Path]:
    """A file for each shape. Raises what the model's files raise."""
    config = load_model_config(model_dir)
    flow = FlowModel(
        config.cosyvoice3_flow, load_state_dict(model_dir / "flow.safetensors"), device=_CPU, dtype=torch.float32
    )
    state = load_state_dict(model_dir / "vocoder.safetensors")
    vocoder = load_vocoder_weights(config.vocoder, state, device=_CPU)
    out.mkdir(parents=True, exist_ok=True)
    paths = []
    for shape in FLOW_SHAPES:
        made = flow_step_model(flow.estimator, shape, cfg_rate=config.cosyvoice3_flow.cfg_rate, low=low or FLOW_LOW)
        paths.append(out / f"{shape.name}.{low or FLOW_LOW}.onnx")
        graph.save(made, paths[-1])
    cuda = replace(VOCODER, precision=low or VOCODER.precision)
    for vocoder_shape in filter_shapes(config.vocoder, cuda).values():
        made = filter_model(config.vocoder, vocoder, vocoder_shape, low=cuda.precision)
        paths.append(out / f"{vocoder_shape.name}.{cuda.precision}.onnx")
        graph.save(made, paths[-1])
    return paths


def engine_ms(engine: SingleEngine) -> float:
    """Time of one call, replayed in a CUDA graph."""
    from voicegate.bench.kernels.timing import device_ms  # noqa: PLC0415 - beside the GPU's kernels

    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(stream):
        engine.enqueue(stream.cuda_stream)  # what it puts off to its first call must not be captured
        stream.synchronize()
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured, stream=stream):
            engine.enqueue(stream.cuda_stream)
        captured.replay()
        return device_ms(captured.replay, num_runs=_NUM_RUNS)


def build(trt: Any, model: onnx.ModelProto) -> LoadedEngine:
    with TemporaryDirectory() as directory:
        path = Path(directory) / "model.onnx"
        graph.save(model, path)
        return LoadedEngine(trt, build_plan(trt, path), _CUDA)


def measure_flow_steps(trt: Any) -> dict[str, Any]:
    """Alone, of many rows too."""
    from voicegate.bench.kernels.flow import block_ms  # noqa: PLC0415 - they need Triton
    from voicegate.bench.kernels.flow_model import FULL_SIZE, FlowFixture  # noqa: PLC0415
    from voicegate.engine.flow.cuda.config import FlowCudaConfig  # noqa: PLC0415
    from voicegate.engine.flow.cuda.solver import CudaSolver  # noqa: PLC0415

    fixture = FlowFixture()
    solver = CudaSolver(fixture.model, fixture.pool, FlowCudaConfig())
    solver.graphs.capture()
    results: dict[str, Any] = {}
    for shape in FLOW_SHAPES:
        ours_ms = block_ms(solver, fixture, shape.num_rows, shape.context_frames) / FULL_SIZE.num_euler_steps
        model = flow_step_model(fixture.model.estimator, shape, cfg_rate=FULL_SIZE.cfg_rate, low=FLOW_LOW)
        results[shape.name] = {"ours_ms": ours_ms, "tensorrt_ms": engine_ms(SingleEngine(build(trt, model)))}
        _tell(shape.name, results[shape.name])
    return results


def measure_flow_blocks(trt: Any) -> dict[str, Any]:
    """All Euler steps of a block or two, as the engine would run them."""
    from voicegate.bench.kernels.flow_model import FULL_SIZE, random_state_dict  # noqa: PLC0415 - beside the kernels
    from voicegate.engine.backends.tensorrt.flow.check import FlowCheck  # noqa: PLC0415
    from voicegate.engine.backends.tensorrt.flow.engines import FlowEngines  # noqa: PLC0415
    from voicegate.engine.backends.tensorrt.flow.trial import FlowTrial  # noqa: PLC0415
    from voicegate.engine.flow.cuda.config import FlowCudaConfig  # noqa: PLC0415

    state = random_state_dict(FULL_SIZE)
    model = FlowModel(FULL_SIZE, state, device=_CUDA, dtype=torch.bfloat16)
    check = FlowCheck(FlowModel(FULL_SIZE, state, device=_CPU, dtype=torch.float32))
    engines, errors = {}, {}
    for shape in ENGINE_SHAPES:
        made = flow_step_model(model.estimator, shape, cfg_rate=FULL_SIZE.cfg_rate, low=FLOW_LOW)
        engines[shape] = build(trt, made)
        errors[shape] = check.error(engines[shape], shape)
    trial = FlowTrial(model, FlowCudaConfig(), ENGINE_SHAPES, kv_dtype=torch.bfloat16)
    with torch.cuda.stream(torch.cuda.Stream()):  # type: ignore[no-untyped-call]
        theirs, ours = trial.block_ms(FlowEngines(engines, _CUDA)), trial.block_ms(None)
    results: dict[str, Any] = {}
    for shape in ENGINE_SHAPES:
        result = {"ours_ms": ours[shape], "tensorrt_ms": theirs[shape], "error": errors[shape]}
        results[shape.name] = result
        _tell(shape.name, result)
    return results


def measure_vocoder(trt: Any) -> dict[str, Any]:
    """Whole calls, as the engine would make them."""
    from voicegate.bench.kernels.floors import FULL  # noqa: PLC0415 - beside the GPU's kernels
    from voicegate.bench.kernels.vocoder_model import VocoderFixture  # noqa: PLC0415
    from voicegate.engine.backends.tensorrt.vocoder.check import FilterCheck  # noqa: PLC0415
    from voicegate.engine.backends.tensorrt.vocoder.filter import TensorrtFilter  # noqa: PLC0415
    from voicegate.engine.backends.tensorrt.vocoder.trial import call_ms  # noqa: PLC0415
    from voicegate.engine.vocoder.cuda.renderer import CudaRenderer  # noqa: PLC0415

    fixture = VocoderFixture()
    shapes, max_streams = filter_shapes(FULL.vocoder, VOCODER), VOCODER.max_batch
    weights = fixture.load(_CPU).weights
    check = FilterCheck(FULL.vocoder, weights)
    engines, errors = {}, {}
    for bucket, shape in shapes.items():
        engines[bucket] = build(trt, filter_model(FULL.vocoder, weights, shape, low=VOCODER.precision))
        errors[bucket] = check.error(engines[bucket], shape)
    buckets = list(shapes)
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    made = partial(CudaRenderer, fixture.model, VOCODER, max_streams=max_streams, stream=stream)
    ours = call_ms(made(), buckets)
    filter_of = partial(TensorrtFilter, FULL.vocoder, engines, max_streams=max_streams)
    theirs = call_ms(made(filter_of=filter_of), buckets)
    results: dict[str, Any] = {}
    for bucket, ours_ms, tensorrt_ms in zip(buckets, ours, theirs, strict=True):
        result = {"ours_ms": ours_ms, "tensorrt_ms": tensorrt_ms, "error": errors[bucket]}
        results[shapes[bucket].name] = result
        _tell(shapes[bucket].name, result)
    return results


def _tell(name: str, result: dict[str, float]) -> None:
    error = f"  error {result['error']:.1e}" if "error" in result else ""
    print(f"{name:<32} ours {result['ours_ms']:8.3f} ms  TensorRT {result['tensorrt_ms']:8.3f} ms{error}", flush=True)


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m voicegate.bench.tensorrt",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    exporting = commands.add_parser("export", help="write the ONNX graphs")
    exporting.add_argument("--model", type=Path, default=environment.REPOSITORY / "models" / "tiny")
    exporting.add_argument("--out", type=Path, required=True, metavar="DIR")
    exporting.add_argument("--precision", choices=graph.PRODUCT_TYPES, help="of products (default: the engine's)")
    measuring = commands.add_parser("measure", help="engines against our kernels, on a GPU")
    measuring.add_argument("--json", type=Path, metavar="FILE")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    try:
        if options.command == "export":
            for path in export(options.model, options.out, options.precision):
                print(path)
            return 0
        trt = load_tensorrt()
        if not torch.cuda.is_available():
            raise TensorrtError("measuring needs a CUDA device, and torch sees none")
        report: dict[str, Any] = {"environment": environment.describe(), "tensorrt": trt.__version__}
        parts = {
            "flow_steps": measure_flow_steps,
            "flow_blocks": measure_flow_blocks,
            "vocoder": measure_vocoder,
        }
        for name, measure in parts.items():
            report[name] = measure(trt)
            torch.cuda.empty_cache()
            results_file.save(report, options.json)
    except (TensorrtError, ValueError, OSError) as error:
        print(f"bench.tensorrt: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
