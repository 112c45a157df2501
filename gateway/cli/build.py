"""`voicegate build`: TensorRT engines of a model's vocoder and flow, for the GPU of this machine."""

import argparse
import os
from pathlib import Path
from typing import Any

from voicegate.engine import additions
from voicegate.gateway.cli.engine_settings import engine_config
from voicegate.gateway.cli.extras import extra_imports
from voicegate.gateway.cli.terminal import CommandError, StartProgress, say
from voicegate.gateway.config import from_environment

# Settings that the command line may name instead of the environment, as `voicegate serve` reads it.
_SETTINGS = ("model_dir", "tensorrt_dir", "vocoder_precision", "precision")


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "build",
        help="make TensorRT engines of vocoder and flow, for this GPU",
        description="Build TensorRT engines of a model's vocoder and flow for the GPU that torch sees first, check "
        "each against float32 on the CPU, and keep them beside the model. `voicegate serve` then measures them against "
        "our own kernels at every start (--vocoder-backend and --flow-backend auto) or takes them (tensorrt). Engines "
        "do for one model, one version of TensorRT and one kind of GPU; those that are there and do are not built "
        "again, so a run that was stopped goes on where it was. Needs the extras server, gpu and tensorrt.",
        allow_abbrev=False,
    )
    parser.add_argument("--model-dir", type=Path, help="(default: the model that `voicegate serve` would serve)")
    parser.add_argument(
        "--tensorrt-dir", type=Path, metavar="DIR", help="where to keep them (default: `tensorrt` in the model's)"
    )
    parser.add_argument(
        "--vocoder-precision", metavar="NAME", help="the vocoder's: float16 (default), bfloat16, tf32 or float32"
    )
    parser.add_argument("--precision", metavar="NAME", help="the flow's: bfloat16 (default) or float32")
    parser.add_argument("--force", action="store_true", help="build also those that are there")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    config = engine_config(from_environment(os.environ, {name: getattr(options, name) for name in _SETTINGS}))
    try:
        with extra_imports("server,tensorrt"):
            build = additions.load("tensorrt", "build")  # torch, onnx
    except additions.MissingAddition as error:
        raise CommandError(str(error)) from error
    built = build.build_engines(config, StartProgress(), is_forced=options.force)
    say(
        f"{built.directory}: {built.num_built} engines built ({built.num_bytes >> 20} MiB), {built.num_kept} kept; "
        f"voicegate serve --model-dir {config.model_dir}"
    )
    return 0
