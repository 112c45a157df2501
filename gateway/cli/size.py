"""`voicegate size`: how many streams a GPU carries with this model, and what speech costs on it. Needs no GPU."""

import argparse
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson

from voicegate.gateway.cli.cards import (
    CARDS,
    MEASURED_WEIGHTS,
    Card,
    Cost,
    cost,
    is_measured,
    speed_of,
    streams_by_memory,
)
from voicegate.gateway.cli.extras import server_imports
from voicegate.gateway.cli.model_files import check_config
from voicegate.gateway.cli.terminal import CommandError, note, say
from voicegate.gateway.config import GatewayConfig, from_environment

if TYPE_CHECKING:
    from voicegate.engine.model.config import ModelConfig

_GIB: Final = 1 << 30
# Letters and blanks of English prose to a second of speech: docs/adr/0008's clauses of 240 take 17 s.
_CHARACTERS_PER_S: Final = 14.0
_MEASURED_FAMILY: Final = "cosyvoice3"
_WEIGHTS_TOLERANCE: Final = 0.1  # a model so much larger or smaller has another speed than the measured one
_SETTINGS: Final = (
    "model_dir",
    "precision",
    "kv_dtype",
    "max_active_clauses",
    "vocoder_backend",
    "flow_backend",
    "llm_device",
    "token2wav_devices",
)


@dataclass(frozen=True, slots=True)
class Sized:
    """Streams and cost of one card. None: not known, for the model is not of the sizes that were measured."""

    card: str
    gpus: int  # of this card: more than one where the LLM has one of its own
    memory_gib: float  # of each
    least_gib: float  # on the one that is asked for most
    fits: bool
    is_measured: bool
    blocks: int
    slots: int
    streams_by_memory: int
    latency_streams_by_arithmetic: int | None
    most_streams_by_arithmetic: int | None
    audio_s_per_s: float | None

    def streams(self, by_arithmetic: int | None) -> int:
        return self.streams_by_memory if by_arithmetic is None else min(self.streams_by_memory, by_arithmetic)


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "size",
        help="how many streams a GPU carries, and what speech costs",
        description="Streams at once by memory (a formula over model.json) and by arithmetic (measured on an H200 and "
        "an H100, computed from these for other cards, marked ~).",
        allow_abbrev=False,
    )
    parser.add_argument("--model-dir", type=Path, help="(default: the model that `voicegate serve` would serve)")
    parser.add_argument("--precision", metavar="NAME", help="as for serve")
    parser.add_argument("--kv-dtype", metavar="NAME", help="as for serve")
    parser.add_argument("--max-active-clauses", metavar="INT", help="as for serve")
    for part in ("vocoder", "flow"):
        parser.add_argument(
            f"--{part}-backend", metavar="NAME", help="as for serve; tensorrt: with room for its engines"
        )
    parser.add_argument("--llm-device", metavar="DEVICE", help="as for serve: several GPUs of a card, by memory alone")
    parser.add_argument("--token2wav-devices", metavar="DEVICES", help="as for serve")
    parser.add_argument("--card", action="append", choices=sorted(CARDS), help="(default: all; may be given again)")
    parser.add_argument("--price", type=_positive, metavar="MONEY", help="of a GPU hour, in any currency")
    parser.add_argument(
        "--busy-share",
        type=_share,
        default=1.0,
        metavar="SHARE",
        help="of those streams that a card speaks on average over day and night; a batch leaves none idle (default: 1)",
    )
    parser.add_argument(
        "--characters-per-s",
        type=_positive,
        default=_CHARACTERS_PER_S,
        metavar="N",
        help=f"of text, to a second of speech (default: {_CHARACTERS_PER_S:g}, English)",
    )
    parser.add_argument("--json", action="store_true", help="the same for programs")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Exit status 1 where none of the cards has room."""
    config = from_environment(os.environ, {name: getattr(options, name) for name in _SETTINGS})
    model = check_config(config.found_model_dir())
    cards = [CARDS[name] for name in options.card or CARDS]
    table = [size(card, config, model) for card in cards]
    if options.json:
        say(orjson.dumps([_as_object(row, options) for row in table]).decode())
    else:
        for line in _lines(table, options):
            say(line)
        if table[0].gpus > 1:
            note(
                f"of {table[0].gpus} GPUs together, the LLM on one of them, by memory alone: docs/adr/0024 has what "
                "two H200s did"
            )
        elif table[0].audio_s_per_s is None:
            note(
                f"{model.name} is not of the sizes that were measured: memory alone is known; name another --model-dir"
            )
    return 0 if any(row.fits for row in table) else 1


def size(card: Card, config: GatewayConfig, model: "ModelConfig") -> Sized:
    with server_imports():
        from voicegate.engine.interface import EngineError  # noqa: PLC0415
        from voicegate.engine.load.devices import layout_of  # noqa: PLC0415 - torch
        from voicegate.engine.load.memory import (  # noqa: PLC0415
            PROCESS_BYTES,
            gpu_memories,
            spare_room,
            with_layouts_that_fit,
        )
        from voicegate.gateway.cli.engine_settings import engine_config  # noqa: PLC0415

    try:
        resolved = (asked := engine_config(config)).resolved("cuda", card.gpu)
        layout = layout_of(asked)
        resolved = resolved if layout is None else layout.limited(asked, resolved)
    except (ValueError, EngineError) as error:
        raise CommandError(str(error)) from error
    num_token2wavs = max(len(resolved.token2wav_devices), 1)
    room, free_bytes = spare_room(resolved), card.gpu.memory_bytes - PROCESS_BYTES
    resolved = with_layouts_that_fit(resolved, model, room, free_bytes)
    parts = tuple(gpu_memories(resolved, model, room).values())
    memory, least_bytes = parts[-1], max(part.least_bytes for part in parts)
    fits = least_bytes <= free_bytes
    blocks = memory.num_blocks_in(free_bytes) if fits else 0
    is_of_that_size = abs(memory.num_weights / MEASURED_WEIGHTS - 1) < _WEIGHTS_TOLERANCE
    has_known_speed = is_of_that_size and model.family == _MEASURED_FAMILY and layout is None
    speed = speed_of(card) if has_known_speed else None
    return Sized(
        card=card.name,
        gpus=num_token2wavs if layout is None else num_token2wavs + 1,
        memory_gib=card.memory_gib,
        least_gib=round((least_bytes + PROCESS_BYTES) / _GIB, 1),
        fits=fits,
        is_measured=is_measured(card) and has_known_speed,
        blocks=num_token2wavs * blocks,
        slots=num_token2wavs * resolved.max_active_clauses,
        streams_by_memory=num_token2wavs
        * streams_by_memory((blocks - memory.voice_blocks) * memory.block_s, num_slots=resolved.max_active_clauses),
        latency_streams_by_arithmetic=None if speed is None else speed.latency_streams,
        most_streams_by_arithmetic=None if speed is None else speed.most_streams,
        audio_s_per_s=None if speed is None else round(speed.audio_s_per_s, 1),
    )


# --- showing -----------------------------------------------------------------------------------------------------


def _as_object(row: Sized, options: argparse.Namespace) -> dict[str, Any]:
    costs = {name: None if cost is None else asdict(cost) for name, cost in _costs(row, options)}
    return {**asdict(row), "cost": costs}


def _costs(row: Sized, options: argparse.Namespace) -> Iterator[tuple[str, Cost | None]]:
    """For listeners who wait little, for as many as can be, and for files that no one waits for."""
    ways = {
        "latency": row.latency_streams_by_arithmetic and row.streams(row.latency_streams_by_arithmetic),
        "throughput": row.most_streams_by_arithmetic and row.streams(row.most_streams_by_arithmetic),
    }
    busy: dict[str, float | None] = {name: streams and streams * options.busy_share for name, streams in ways.items()}
    for name, speech_s_per_s in {**busy, "batch": row.audio_s_per_s}.items():
        if options.price is None or not row.fits or not speech_s_per_s:
            yield name, None
        else:
            yield name, cost(options.price, speech_s_per_s, characters_per_s=options.characters_per_s)


def _lines(table: list[Sized], options: argparse.Namespace) -> Iterator[str]:
    yield f"{'card':<8} {'GiB':>6} {'by memory':>10} {'latency':>9} {'throughput':>11} {'audio-s/s':>10}"
    for row in table:
        yield _line(row)
    if options.price is not None:
        yield ""
        yield f"{'card':<8} {'an hour of speech':>31}   {'a million characters':>31}"
        yield f"{'':<8} {'latency throughput     batch':>31}   {'latency throughput     batch':>31}"
        for row in table:
            yield _cost_line(row, options)


def _line(row: Sized) -> str:
    if not row.fits:
        return f"{row.card:<8} {row.memory_gib:>6} does not fit: {row.least_gib} GiB at the least"
    mark = "" if row.is_measured else "~"
    shown = [
        "-" if number is None else f"{mark}{row.streams(number)}"
        for number in (row.latency_streams_by_arithmetic, row.most_streams_by_arithmetic)
    ]
    audio = "-" if row.audio_s_per_s is None else f"{mark}{row.audio_s_per_s:.0f}"
    return f"{row.card:<8} {row.memory_gib:>6} {row.streams_by_memory:>10} {shown[0]:>9} {shown[1]:>11} {audio:>10}"


def _cost_line(row: Sized, options: argparse.Namespace) -> str:
    costs = [found for _, found in _costs(row, options)]
    hours = " ".join("-".rjust(10) if found is None else f"{found.per_speech_hour:>10.4f}" for found in costs)
    millions = " ".join("-".rjust(10) if found is None else f"{found.per_million_characters:>10.3f}" for found in costs)
    return f"{row.card:<8} {hours:>31}   {millions:>31}"


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text} is not a number") from None


def _positive(text: str) -> float:
    number = _number(text)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not more than 0")
    return number


def _share(text: str) -> float:
    number = _number(text)
    if not 0 < number <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not more than 0 and at most 1")
    return number
