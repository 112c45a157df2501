"""The released models' sizes without their weights: make one, convert it, load it and speak with it.

    python -m voicegate.bench.full_size make SRC [--never-stop]        upstream's layout, 3.4 GB
    python -m voicegate.bench.full_size check SRC DST [--device cuda]  convert, load, speak
    python -m voicegate.bench.full_size engine-dir DST [--never-stop | --natural]  a converted directory at once, 2.4 GB

`--family cosyvoice2-stepaudio2` with `make` (2.0 GB) and `engine-dir` (1.7 GB): the second family, `--decoding` as
`voicegate convert` has it.

The weights are generated (bench/full_size/source.py), so what it speaks is noise; with --never-stop the rows of the
200 stop ids in the LLM's head are zero and the others four times as large, and speech lasts to its length limit. With
--natural it ends as a trained model's does, and there are six voices with prompts of 3 to 10 s (full_size/natural.py).
`check` writes bench/results/full-size-DEVICE.json; BENCH_COMMIT names the commit where there is no git.
"""

import argparse
import json
import time
from pathlib import Path

from voicegate.bench import environment, results_file
from voicegate.bench.full_size.engine_dir import Ending, make_engine_dir
from voicegate.bench.full_size.families import FULL_SIZES, AnySizes, write_any_source
from voicegate.bench.full_size.proof import check
from voicegate.engine.checkpoint.conversion import DTYPE_NAMES, ConvertOptions, Decoding
from voicegate.engine.load.family import PARTS
from voicegate.engine.model.config import COSYVOICE3


def make(directory: Path, sizes: AnySizes, *, never_stop: bool) -> None:
    started_s = time.perf_counter()
    for name in write_any_source(directory, sizes, never_stop=never_stop):
        print(f"{time.perf_counter() - started_s:6.1f} s  {name}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    never_stop = argparse.ArgumentParser(add_help=False)
    never_stop.add_argument("--never-stop", action="store_true", help="speech lasts to its length limit")
    making = commands.add_parser("make", parents=[never_stop])
    making.add_argument("source", type=Path)
    making.add_argument("--family", choices=FULL_SIZES, default=COSYVOICE3)
    checking = commands.add_parser("check")
    checking.add_argument("source", type=Path)
    checking.add_argument("target", type=Path)
    checking.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    checking.add_argument("--output", type=Path, help="default: bench/results/full-size-DEVICE.json")
    direct = commands.add_parser("engine-dir")
    direct.add_argument("target", type=Path)
    direct.add_argument("--family", choices=FULL_SIZES, default=COSYVOICE3)
    direct.add_argument("--decoding", choices=[each.value for each in Decoding], default=Decoding.ORIGINAL.value)
    endings = direct.add_mutually_exclusive_group()
    for ending in (Ending.NEVER, Ending.NATURAL):
        endings.add_argument(f"--{ending.value}", dest="ending", action="store_const", const=ending)
    direct.set_defaults(ending=Ending.DRAWN)
    for part in PARTS:
        direct.add_argument(f"--{part}-dtype", choices=DTYPE_NAMES, default=ConvertOptions().dtype_of(part))
    options = parser.parse_args()

    if options.command == "make":
        make(options.source, FULL_SIZES[options.family], never_stop=options.never_stop)
    elif options.command == "engine-dir":
        chosen = ConvertOptions(
            llm_dtype=options.llm_dtype,
            flow_dtype=options.flow_dtype,
            vocoder_dtype=options.vocoder_dtype,
            decoding=Decoding(options.decoding),
        )
        make_engine_dir(options.target, FULL_SIZES[options.family], chosen, options.ending)
    else:
        results = environment.REPOSITORY / "bench" / "results"
        output = options.output or results / f"full-size-{options.device}.json"
        report = check(options.source, options.target, options.device)
        results_file.save(report, output)
        print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
