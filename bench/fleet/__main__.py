"""100,000 streams over 300 GPUs: what the balancer's rule and failures cost in first audio, and GPUs for an SLO.

    python -m voicegate.bench.fleet [--json FILE]

A simulation over measured figures of one GPU (bench/results/engine-h200-3d38cbd.json); no fleet was measured.
"""

import argparse
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from voicegate.bench import environment, results_file
from voicegate.bench.fleet.gpu import measured
from voicegate.bench.fleet.rules import Rule
from voicegate.bench.fleet.simulation import Case, Fleet

RESULTS: Final = Path(__file__).parents[1] / "results/engine-h200-3d38cbd.json"
BASE: Final = Case(Rule.LEAST_UNTIL_FULL, num_gpus=300, num_streams=100_000)
FAILURES: Final = (8, 24)  # a host of eight, three hosts
SIZES: Final = (270, 285, 315, 330, 350)


def run(case: Case) -> dict[str, Any]:
    return {
        "rule": case.rule.value,
        "gpus": case.num_gpus,
        "streams": case.num_streams,
        "failing": case.num_failing,
        **Fleet(case, measured(RESULTS)).run(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the figures here")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    cases = {
        "rules": [replace(BASE, rule=rule) for rule in Rule],
        "sizes": [replace(BASE, num_gpus=number) for number in SIZES],
        "failures": [replace(BASE, num_failing=number) for number in FAILURES],
        "failures, 350 GPUs": [replace(BASE, num_gpus=350, num_failing=number) for number in FAILURES],
    }
    with ProcessPoolExecutor(options.processes) as pool:
        rows = pool.map(run, [case for group in cases.values() for case in group])
        report = {name: [next(rows) for _ in group] for name, group in cases.items()}
    for name, found in report.items():
        print(name)
        for row in found:
            print("  ", row)
    results_file.save({"environment": environment.describe(), **report}, options.json)


if __name__ == "__main__":
    main()
