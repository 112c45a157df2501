"""One run of bench.engine: the engine is loaded, and each scenario's listeners hear it in this process."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from voicegate.bench.engine.seam import Seam, listening_to
from voicegate.bench.engine.usage import gpu_memory, stage_report
from voicegate.clients.bench import judge, table
from voicegate.clients.bench.client_run import ClientRun, clients_report
from voicegate.clients.bench.dialects.conversation import ConversationLost
from voicegate.clients.bench.plan import Began, Finished, Plan, Report, Stop, Target, Told
from voicegate.clients.bench.scenario import Kind, Scenario, parse
from voicegate.clients.bench.schedule import Schedule, Settings, schedule
from voicegate.clients.bench.worker import carry_out
from voicegate.engine.config import EngineConfig
from voicegate.engine.interface import EngineStopped
from voicegate.engine.load.build import create_engine
from voicegate.engine.load.progress import Lines

_WARM: Final = parse("closed:1")
_WARM_S: Final = 2.0
_START_S: Final = 0.1


def flattery(voices: Sequence[str], scenarios: Sequence[Scenario]) -> list[str]:
    """Where the figures were given more than a gateway in service is."""
    phrases = ["measured at the engine seam: no sockets, no gateway, no client's network"]
    if all(each.writer.words_per_s is None and each.kind is not Kind.MIXED for each in scenarios):
        phrases.append("text given whole, not as an agent writes it")
    if "generated" in voices[0]:
        phrases.append("generated weights: speech ends with its text, and a text always takes the same time")
    if len(voices) == 1:
        phrases.append("all speak with one voice")
    return phrases


async def measure(
    config: EngineConfig,
    scenarios: Sequence[Scenario],
    settings: Settings,
    result: dict[str, Any],
    save: Callable[[dict[str, Any]], None],
) -> None:
    """Prints as it goes; `result` is saved with each scenario. Raises EngineError with the remedy."""
    engine = create_engine(config, on_progress=Lines(lambda line: print(line, flush=True)))
    started_s = time.monotonic()
    await engine.start()
    result["start_s"] = round(time.monotonic() - started_s, 2)
    async with listening_to(engine) as seam:
        voices = [each for each in settings.voices if each is not None]
        voices = voices or [voice.name for voice in engine.info.voices]
        settings = replace(settings, voices=voices)
        said = {"model": engine.info.model, "flattered_by": flattery(voices, scenarios), "gpu_memory_gib": gpu_memory()}
        result |= said | settings.conditions() | {"scenarios": {}}
        await _run(seam, schedule(_WARM, replace(settings, duration_s=_WARM_S)))
        print(table.heading(), flush=True)
        for scenario in scenarios:
            row, heard = await measure_scenario(seam, scenario, settings)
            learnt = judge.seconds_per_letter(heard.records)
            settings = settings if learnt is None else replace(settings, seconds_per_letter=learnt)
            result["scenarios"][str(scenario)] = row
            save(result)
            print("\n".join(table.lines(str(scenario), row)), flush=True)
            for stage, counters in row["stages"].items():
                print(f"    {stage} {counters}", flush=True)


async def measure_scenario(seam: Seam, scenario: Scenario, settings: Settings) -> tuple[dict[str, Any], ClientRun]:
    """The row of a result file, with the engine's stages."""
    planned = schedule(scenario, settings)
    before, begun_s = dict(seam.engine.stats().counters), time.monotonic()
    heard = await _run(seam, planned)
    wall_s = time.monotonic() - begun_s
    audio_s = sum(num_48k for record in heard.records for _, num_48k in record.arrivals) / 48_000
    row = judge.figures(heard.records, window_s=heard.window_s(planned))
    row["seconds_per_letter"] = round(settings.seconds_per_letter, 4)
    row["clients"] = clients_report(heard.finished)
    row["stages"] = stage_report(before, seam.engine.stats().counters, wall_s=wall_s, audio_s=audio_s)
    return row, heard


async def _run(seam: Seam, planned: Schedule) -> ClientRun:
    """Raises EngineStopped."""
    orders: asyncio.Queue[Began | Stop] = asyncio.Queue()
    heard = ClientRun.awaiting(planned, time.monotonic() + _START_S)

    def tell(report: Report) -> None:
        if isinstance(report, Told) and heard.note(report.record, planned):
            orders.put_nowait(Stop())

    orders.put_nowait(Began(heard.start_s))
    plan = Plan(Target(""), planned.visits, len(planned.visits), planned.last_start_s, planned.stop_s)
    try:
        finished = await carry_out(plan, orders, tell, seam.connect)
    except ConversationLost as error:
        raise EngineStopped(str(error)) from error
    assert isinstance(finished, Finished)
    heard.finished.append(finished)
    return heard
