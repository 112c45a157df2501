"""One run of bench.engine: loads the engine, learns how long its model speaks, goes through scenarios, reports.

The report is saved after every scenario: whoever is cut short keeps what was measured.
"""

import random
import re
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import torch

from voicegate.bench import environment, sentences
from voicegate.bench.engine import report
from voicegate.bench.engine.driver import Driver, Speech, driving
from voicegate.bench.engine.flattery import flattery
from voicegate.bench.engine.load import StartPattern
from voicegate.bench.engine.memory import free_gpu_memory, memory_growth
from voicegate.bench.engine.scenarios import Load, Outcome, burst, cancel, first_audio, live
from voicegate.bench.engine.texts import Lengths, Script, ScriptWriter, Seconds, candidates, limit_seconds
from voicegate.bench.engine.usage import gpu_memory
from voicegate.bench.plain import system as plain
from voicegate.bench.plain.llm import PlainLlmKind
from voicegate.engine.config import EngineConfig
from voicegate.engine.interface import Done, EngineError, SpeakingMode
from voicegate.engine.load.build import create_engine
from voicegate.engine.load.devices import choose_device
from voicegate.engine.load.progress import Lines
from voicegate.engine.model.model_json import load_model_config
from voicegate.engine.text.tokenizer import TextTokenizer

ALL_SCENARIOS: Final = ("first-audio", "live-16", "live-128", "sustain-300", "burst-400", "cancel-16", "memory")
_ALONE: Final = ("first-audio", "memory")
_REAL_TIME: Final = ("live", "sustain")
_LOADS: Final = {"live": live, "sustain": live, "burst": burst, "cancel": cancel}

_NUM_SCRIPTS: Final = 200
_SHORT_S: Final = (3.0, 5.0)
# Short texts whose first audio the plain way is timed by: cheap, since it stops there.
_NUM_PLAIN_FIRST_AUDIO: Final = 5

Save = Callable[[dict[str, Any]], None]
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ScenarioName:
    kind: str
    num_streams: int

    def __str__(self) -> str:
        return self.kind if self.kind in _ALONE else f"{self.kind}-{self.num_streams}"


def parse_scenario(name: str, *, default_streams: int) -> ScenarioName:
    """first-audio, memory, or KIND[-N]. Raises ValueError, which lists what there is."""
    if name in _ALONE:
        return ScenarioName(name, 1)
    match = re.fullmatch(r"([a-z]+)(?:-(\d+))?", name)
    if match is None or match[1] not in _LOADS:
        raise ValueError(f"no scenario {name!r}; there are {', '.join((*_ALONE, *(f'{k}-N' for k in _LOADS)))} and all")
    return ScenarioName(match[1], int(match[2] or default_streams))


@dataclass(frozen=True, slots=True)
class Run:
    """Options of the command line."""

    config: EngineConfig
    scenarios: tuple[ScenarioName, ...]
    label: str
    mode: SpeakingMode
    tokens_per_s: float | None  # None: text is given whole
    shortest_s: float
    longest_s: float
    lengths: Lengths | None  # None: find out
    voices: tuple[str, ...]  # empty: all
    pattern: StartPattern
    num_samples: int
    duration_s: float
    limit_s: float
    seed: int
    plain_llms: tuple[PlainLlmKind, ...]  # the plain way with each of these; empty: leave it out
    num_plain: int  # utterances of it
    plain_dtype: str | None


async def measure(run: Run, save: Save) -> None:
    """Everything that was asked for; prints as it goes. Raises EngineError with the remedy."""
    result: dict[str, Any] = {
        "label": run.label,
        "environment": environment.describe(),
        "config": {name: _plain_data(value) for name, value in asdict(run.config).items()},
        "load": {
            "mode": run.mode.value,
            "arrival": run.pattern.value,
            "tokens_per_s": run.tokens_per_s,
            "wanted_audio_s": [run.shortest_s, run.longest_s],
            "seed": run.seed,
        },
        "scenarios": {},
    }
    load = await measure_engine(run, result, save, _tell)
    if any(name.kind == "memory" for name in run.scenarios):
        result["scenarios"]["memory"] = await memory_growth(run.config)
    if run.plain_llms:
        _measure_plain(run, load, result, save)
    # For an H200; elsewhere there are no targets.
    result["targets"] = report.targets_report(result) if result["environment"]["gpu"] else []
    result["flattered_by"] = flattery(result)
    save(result)
    for line in report.table(result):
        print(line, flush=True)


async def measure_engine(run: Run, result: dict[str, Any], save: Save, tell: Tell) -> Load:
    """Everything that needs the one engine under test; it is closed, and its memory free, when this returns.

    `result["scenarios"]`, which the caller has made, grows with each. Raises EngineError.
    """
    engine = create_engine(run.config, on_progress=Lines(tell))
    started_s = time.monotonic()
    await engine.start()
    result["start_s"] = round(time.monotonic() - started_s, 2)
    try:
        speech = Speech(mode=run.mode, tokens_per_s=run.tokens_per_s)
        async with driving(engine, speech) as driver:
            voices = run.voices or tuple(voice.name for voice in engine.info.voices)
            lengths, seconds_of = await _learn_lengths(run, driver, voices[0])
            result |= {
                "model": engine.info.model,
                "voices": voices,
                "lengths": lengths.value,
                "gpu_memory_gib": gpu_memory(),
            }
            load = _load(run, lengths, seconds_of, voices)
            for name in run.scenarios:
                if name.kind == "memory":
                    continue
                _warn_of_queueing(name, run.config, tell)
                outcome = await _play(name, driver, load)
                row = report.outcome_report(outcome)
                if name.kind in _REAL_TIME:
                    row["is_sustained"] = report.is_sustained(row)
                result["scenarios"][str(name)] = row
                save(result)
                tell(f"{name}: first audio {row['first_audio_ms']}")
    finally:
        await engine.close()
    del engine, driver
    free_gpu_memory()
    return load


async def _play(name: ScenarioName, driver: Driver, load: Load) -> Outcome:
    if name.kind == "first-audio":
        return await first_audio(driver, load)
    return await _LOADS[name.kind](driver, load, name.num_streams)


async def _learn_lengths(run: Run, driver: Driver, voice: str) -> tuple[Lengths, Seconds]:
    """Whether the model stops by itself, and how long it speaks a text: by letting it speak. Raises EngineError."""
    audio_s, is_cut = await _speak(driver, sentences.SHORT, voice)
    lengths = run.lengths or (Lengths.LIMIT if is_cut else Lengths.NATURAL)
    if lengths is Lengths.NATURAL:
        sentence = sentences.EVERYDAY[0]
        more_s, _ = await _speak(driver, sentence, voice)
        s_per_char = (audio_s + more_s) / len(sentences.SHORT + sentence)
        return lengths, lambda text: len(text) * s_per_char
    model = load_model_config(run.config.model_dir)
    tokenizer = TextTokenizer.from_file(
        run.config.model_dir / "tokenizer.json", end_of_prompt_id=model.llm.end_of_prompt_id
    )

    def limit_s(text: str) -> float:
        return limit_seconds(
            text,
            tokenizer,
            language=model.languages[0],
            stop=model.llm.stop,
            max_clause_tokens=run.config.max_clause_tokens,
        )

    # Silent tokens are dropped behind the LLM: audio is a little shorter than the limit.
    kept = audio_s / limit_s(sentences.SHORT)
    return lengths, lambda text: limit_s(text) * kept


async def _speak(driver: Driver, text: str, voice: str) -> tuple[float, bool]:
    """Seconds of audio, and whether a length limit ended it."""
    stream = driver.start(Script(text, (text,), 0.0), voice, lead_ms=driver.engine.info.max_lead_ms)
    await stream.ended
    if not isinstance(stream.end, Done) or not stream.end.audio_ms:
        raise EngineError(f"voice {voice!r} does not speak {text!r}: {stream.failure or 'no audio'}")
    return stream.end.audio_ms / 1000, stream.end.is_truncated


def _load(run: Run, lengths: Lengths, seconds_of: Seconds, voices: tuple[str, ...]) -> Load:
    writer = ScriptWriter(seconds_of, candidates(lengths), random.Random(run.seed))
    return Load(
        scripts=writer.write_many(_NUM_SCRIPTS, run.shortest_s, run.longest_s),
        short_scripts=writer.write_many(_NUM_SCRIPTS, min(_SHORT_S[0], run.longest_s), min(_SHORT_S[1], run.longest_s)),
        voices=voices,
        pattern=run.pattern,
        num_samples=run.num_samples,
        duration_s=run.duration_s,
        limit_s=run.limit_s,
        seed=run.seed,
    )


def _measure_plain(run: Run, load: Load, result: dict[str, Any], save: Save) -> None:
    """Fills `plain`, and `ratios` to each of its decoders."""
    device = choose_device(run.config.device)
    dtype_name = run.plain_dtype or ("float32" if device.type == "cpu" else "bfloat16")
    result["plain"] = {"dtype": dtype_name, "gpu_memory_before_gib": gpu_memory(), "by_llm": {}}
    result["ratios"] = {}
    speaker = plain.PlainSpeaker(
        run.config.model_dir,
        device=run.config.device,
        dtype=getattr(torch, dtype_name),
        max_clause_tokens=run.config.max_clause_tokens,
    )
    short = [script.text for script in load.short_scripts[: max(run.num_plain, _NUM_PLAIN_FIRST_AUDIO)]]
    scripts = load.scripts[: run.num_plain]
    for kind in run.plain_llms:
        _tell(f"the plain way, {dtype_name}, {kind.value}; {result['plain']['gpu_memory_before_gib']}")
        if kind is PlainLlmKind.TRANSFORMERS:
            # A token takes more than twice as long, and as long in any text: one of middle length will do.
            scripts = sorted(scripts, key=lambda script: script.expected_s)[len(scripts) // 2 :][:1]
        llm = speaker.load_llm(kind)
        figures = plain.measure(speaker, llm, short, [script.text for script in scripts], load.voices)
        result["plain"]["by_llm"][kind.value] = figures
        result["ratios"][kind.value] = report.ratios(result["scenarios"], figures)
        save(result)


def _warn_of_queueing(name: ScenarioName, config: EngineConfig, tell: Tell) -> None:
    if name.num_streams > config.max_active_clauses:
        tell(f"{name}: only {config.max_active_clauses} passes run at once; --set max_active_clauses=... for more")


def _plain_data(value: object) -> object:
    return value.name if isinstance(value, Path) else value


def _tell(line: str) -> None:
    print(line, flush=True)
