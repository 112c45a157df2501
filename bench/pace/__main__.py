"""Speech of text that comes as an agent writes it: how soon, with which gaps, and how well, by mode and pace.

    python -m voicegate.bench.pace [--modes clause bistream incremental] [--rates 3 5 10 20 40 60] [--json FILE]
    python -m voicegate.bench.pace --modes incremental --set growing_share=0.7 --processes 16
    python -m voicegate.bench.pace --modes incremental --smooth --blocks 0:0 0.4:0 # one block or two at the beginning

On a clock of its own (simulation.py): the figures count the text's time and, where --step-ms says so, the engine's.
Heard by pocketsphinx: compare rows of one run, over hundreds of words. `whole`: the same text given at once, by clause.
--blocks has the engine begin sentences as among other streams whose blocks take so long (docs/adr/0006).
"""

import argparse
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import numpy as np

from voicegate.bench import environment, results_file, sentences
from voicegate.bench.engine.__main__ import with_settings
from voicegate.bench.pace.simulation import IDLE, BlockTimes, StepTimes
from voicegate.bench.pace.speaker import Case, Job, Outcome, open_speaker, speak
from voicegate.bench.pace.writer import Pace, Pieces
from voicegate.engine.config import EngineConfig
from voicegate.engine.interface import SpeakingMode

_TEXTS: Final = {"everyday": sentences.EVERYDAY, "agent": sentences.AGENT}


def cases(
    modes: Sequence[SpeakingMode],
    rates: Sequence[float],
    *,
    pieces: Pieces,
    has_rough: bool,
    block_times: Sequence[BlockTimes] = (IDLE,),
) -> Iterator[Case]:
    """Steady at every rate and, with `has_rough`, jittery; then a stall at the rate in the middle."""
    yield Case(SpeakingMode.CLAUSE, Pace(1.0, pieces=Pieces.WHOLE))
    for mode in modes:
        for rate in rates:
            for others in block_times if mode is SpeakingMode.INCREMENTAL else (IDLE,):
                yield Case(mode, Pace(rate, pieces=pieces), others)
                if has_rough:
                    yield Case(mode, Pace(rate, jitter=1.0, pieces=pieces), others)
        if has_rough:
            yield Case(mode, Pace(sorted(rates)[len(rates) // 2], stall_s=1.5, pieces=pieces))


def parse_block_times(text: str) -> BlockTimes:
    """0.4:0.3 -> BlockTimes(0.4, 0.3). Raises ArgumentTypeError."""
    first, _, later = text.partition(":")
    try:
        block_times = BlockTimes(float(first), float(later))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not two times in seconds such as 0.4:0.3") from error
    if not (0 <= block_times.first_s < math.inf and 0 <= block_times.later_s < math.inf):
        raise argparse.ArgumentTypeError(f"{text!r}: a block takes no less than 0 s, and some time ends")
    return block_times


def compared(outcomes: Sequence[Outcome], others: Sequence[Outcome]) -> tuple[int, float]:
    """More word errors than others' of the same sentences, and the standard error of that."""
    more = [one.num_errors - other.num_errors for one, other in zip(outcomes, others, strict=True)]
    return sum(more), round(math.sqrt(len(more)) * float(np.std(more, ddof=1)), 1)


def report(case: Case, outcomes: Sequence[Outcome], whole: Sequence[Outcome]) -> dict[str, Any]:
    """Reports all sentences of a case. `whole`: those sentences, given at once."""
    first_ms = 1000 * np.array([each.first_audio_s for each in outcomes])
    rises = [each.rise for each in outcomes if each.rise is not None]
    return {
        "mode": case.mode.value,
        "pace": asdict(case.pace) | {"pieces": case.pace.pieces.value},
        "blocks_of_others": asdict(case.others),
        "errors": sum(each.num_errors for each in outcomes),
        "words": sum(each.num_words for each in outcomes),
        "more_errors_than_whole": dict(zip(("sum", "standard_error"), compared(outcomes, whole), strict=True)),
        "begun_with_blocks": dict(sorted(Counter(str(each.num_first_blocks) for each in outcomes).items())),
        "first_audio_ms": {f"p{share}": round(float(np.percentile(first_ms, share))) for share in (50, 95)},
        "with_gap": round(sum(bool(each.gaps_s) for each in outcomes) / len(outcomes), 3),
        "worst_gap_ms": round(1000 * max((gap_s for each in outcomes for gap_s in each.gaps_s), default=0.0)),
        "audio_s": round(sum(each.audio_s for each in outcomes), 1),
        "pauses_s": round(sum(sum(each.pauses_s) for each in outcomes), 1),
        "question_rise_semitones": round(float(np.mean(rises)), 2) if rises else None,
    }


def jobs_of(case: Case, texts: Sequence[str], voices: Sequence[str], seeds: Sequence[int]) -> Iterator[Job]:
    for seed in seeds:
        for index, text in enumerate(texts):
            for voice in voices:
                yield Job(case, text, voice, seed * len(texts) + index)


def line(name: str, row: dict[str, Any]) -> str:
    first = row["first_audio_ms"]
    cells = (
        f"{name:<28} {row['errors']:>5}/{row['words']} {first['p50']:>6}/{first['p95']:<6}",
        f"{100 * row['with_gap']:>5.1f} % {row['worst_gap_ms']:>6} {row['audio_s']:>8.1f} {row['pauses_s']:>7.1f}",
        f"{row['question_rise_semitones']!s:>6}",
    )
    return " ".join(cells)


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=environment.REPOSITORY / "models" / "tiny")
    parser.add_argument("--voices", nargs="+", default=["rms", "slt"])
    modes = [mode.value for mode in SpeakingMode if mode is not SpeakingMode.AUTO]
    parser.add_argument("--modes", nargs="+", default=modes, choices=modes)
    parser.add_argument("--rates", nargs="+", type=float, default=[3, 5, 10, 20, 40, 60], help="words a second")
    parser.add_argument("--texts", nargs="+", default=list(_TEXTS), choices=list(_TEXTS))
    parser.add_argument("--seeds", type=int, default=1, help="how many")
    parser.add_argument("--first-seed", type=int, default=0, help="to go on where another run ended")
    parser.add_argument("--pieces", default="leading", choices=["leading", "trailing"], help="where words' blanks go")
    parser.add_argument("--smooth", action="store_true", help="leave jitter and stalls out")
    parser.add_argument("--step-ms", nargs=2, type=float, default=[0, 0], metavar=("LLM", "EULER"))
    blocks_help = "what first and later blocks of others' streams take, each in turn; default: there are no others"
    parser.add_argument(
        "--blocks", nargs="+", type=parse_block_times, default=[IDLE], metavar="FIRST_S:LATER_S", help=blocks_help
    )
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="an EngineConfig field")
    parser.add_argument("--processes", type=int, default=1, help="that speak side by side, a thread each")
    parser.add_argument("--json", type=Path)
    return parser


def main() -> None:
    options = parser().parse_args()
    # As on a CPU with wide vectors, wherever this runs.
    config = EngineConfig(options.model, device="cpu", threads=1).resolved("cpu")
    config = with_settings(config, options.set)
    llm_ms, euler_ms = options.step_ms
    modes = [SpeakingMode(mode) for mode in options.modes]
    rows: dict[str, Any] = {}
    described = {"environment": environment.describe(), "set": options.set, "step_ms": options.step_ms, "rows": rows}
    print(
        f"{'':<28} {'errors':>10} {'first p50/p95':>13} {'with gap':>9} {'worst':>5} {'audio s':>8} {'pauses':>7} rise"
    )
    texts = [text for name in options.texts for text in _TEXTS[name]]
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    pieces, has_rough = Pieces(options.pieces), not options.smooth
    all_cases = cases(modes, options.rates, pieces=pieces, has_rough=has_rough, block_times=options.blocks)
    start = (config, StepTimes(llm_ms / 1000, euler_ms / 1000))
    with ProcessPoolExecutor(options.processes, get_context("spawn"), open_speaker, start) as pool:
        coming = [
            (case, [pool.submit(speak, job) for job in jobs_of(case, texts, options.voices, seeds)])
            for case in all_cases
        ]
        whole: list[Outcome] = []
        for case, futures in coming:
            outcomes = [future.result() for future in futures]
            whole = whole or outcomes
            rows[case.name] = report(case, outcomes, whole)
            print(line(case.name, rows[case.name]), flush=True)
            if options.json is not None:
                results_file.save(described, options.json)


if __name__ == "__main__":
    main()
