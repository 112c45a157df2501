"""`voicegate convert`: an upstream directory -> a model directory for `voicegate serve`."""

import argparse
from pathlib import Path
from typing import Any, Final

from voicegate.engine.checkpoint.conversion import DTYPE_NAMES, ConvertOptions, Decoding
from voicegate.engine.voices.files import voice_files
from voicegate.gateway.cli.extras import server_imports
from voicegate.gateway.cli.terminal import Bar, CommandError, note, say

_DEFAULTS: Final = ConvertOptions()


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "convert",
        help="make a model directory from an upstream one",
        description="Convert Fun-CosyVoice3's own files, or CosyVoice2's LLM and Step-Audio2's token2wav, into a model "
        "directory. A run that was stopped goes on where it was; nothing in the source is executed.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "source", metavar="SRC", type=Path, help="with cosyvoice3.yaml or flow.yaml, and what belongs to it"
    )
    parser.add_argument("target", metavar="DST", type=Path, help="the model directory to make")
    parser.add_argument("--llm", metavar="FILE", default=_DEFAULTS.llm_file, help="such as llm.rl.pt (default: llm.pt)")
    for part in ("llm", "flow", "vocoder"):
        default = _DEFAULTS.dtype_of(part)
        parser.add_argument(
            f"--{part}-dtype", choices=DTYPE_NAMES, default=default, help=f"of its weights (default: {default})"
        )
    parser.add_argument(
        "--decoding",
        choices=[decoding.value for decoding in Decoding],
        default=_DEFAULTS.decoding.value,
        help="of CosyVoice2's LLM: as its authors sample it, or as TensorRT-LLM's recipe does (default: original)",
    )
    parser.add_argument("--name", help="of the model, as clients see it (default: SRC's)")
    parser.add_argument("--merged-hf", metavar="DIR", type=Path, help="also write the LLM for TensorRT-LLM and vLLM")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    # They import torch, which --help and the other commands do not need.
    with server_imports():
        from voicegate.engine.checkpoint.conversion import CheckpointError, UnfitTensors  # noqa: PLC0415
        from voicegate.engine.checkpoint.convert import convert  # noqa: PLC0415

    chosen = ConvertOptions(
        llm_file=options.llm,
        llm_dtype=options.llm_dtype,
        flow_dtype=options.flow_dtype,
        vocoder_dtype=options.vocoder_dtype,
        name=options.name,
        merged_hf_dir=options.merged_hf,
        decoding=Decoding(options.decoding),
    )
    try:
        convert(options.source, options.target, chosen, TerminalProgress())
    except UnfitTensors as error:
        for fault in error.faults:
            note(fault)
        raise CommandError(str(error)) from error
    except (CheckpointError, OSError) as error:
        raise CommandError(str(error)) from error
    say(f"{options.target} is ready: voicegate serve --model-dir {options.target}")
    if not voice_files(options.target / "voices"):
        say("it has no voice yet, and the gateway needs one: see voicegate voices add --help")
    return 0


class TerminalProgress:
    """A bar per part where stderr is a terminal, a line per part where it is not. See engine.checkpoint.progress."""

    def __init__(self) -> None:
        self._bar = Bar()
        self._part = ""
        self._num_bytes = 0
        self._num_done = 0

    def begin(self, part: str, num_bytes: int) -> None:
        self._part, self._num_bytes, self._num_done = part, num_bytes, 0
        self._draw()

    def advance(self, num_bytes: int) -> None:
        self._num_done += num_bytes
        self._draw()

    def finish(self, outcome: str) -> None:
        self._bar.clear()
        note(f"{self._part}: {outcome}")

    def remark(self, text: str) -> None:
        self._bar.clear()
        note(f"note: {text}")

    def _draw(self) -> None:
        self._bar.draw(self._part, min(self._num_done / self._num_bytes, 1.0) if self._num_bytes else 0.0)
