"""The released models' sizes without their weights: make one, convert it, load it, speak with it, and round it.

    python -m voicegate.bench.full_size make SRC [--never-stop]        upstream's layout, 3.4 GB
    python -m voicegate.bench.full_size check SRC DST [--device cuda]  convert, speak, compare precisions
    python -m voicegate.bench.full_size engine-dir DST [--never-stop | --natural]  a converted directory at once, 2.4 GB

`--family cosyvoice2-stepaudio2` with `make` (2.0 GB) and `engine-dir` (1.7 GB): the second family, `--decoding` as
`voicegate convert` has it.

The weights are generated (bench/full_size/source.py), so what it speaks is noise; with --never-stop the rows of the
200 stop ids in the LLM's head are zero and the others four times as large, and speech lasts to its length limit. With
--natural it ends as a trained model's does, and there are six voices with prompts of 3 to 10 s (full_size/natural.py).
`check` writes bench/results/full-size-DEVICE.json; BENCH_COMMIT names the commit where there is no git.
"""

import argparse
import asyncio
import json
import resource
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from tokenizers import Tokenizer

from voicegate.bench import environment, results_file
from voicegate.bench.full_size import natural
from voicegate.bench.full_size.families import (
    FULL_SIZES,
    AnySizes,
    raw_json,
    special_tokens_of,
    write_any_source,
)
from voicegate.bench.full_size.precision import compare_all
from voicegate.bench.full_size.source import (
    VOICE_NAME,
    Sizes,
    generate,
    generated_voice,
    model_config,
    tokenizer_files,
)
from voicegate.engine.checkpoint.constants import flow_noise_bytes, write_flow_noise
from voicegate.engine.checkpoint.convert import convert, weights_entries
from voicegate.engine.checkpoint.directory import Item, bytes_item, write_directory
from voicegate.engine.checkpoint.model_json import check_model_json
from voicegate.engine.checkpoint.options import DTYPE_NAMES, ConvertOptions, Decoding
from voicegate.engine.checkpoint.shapes import PARTS, expected_shapes
from voicegate.engine.checkpoint.source import Source, load_weights
from voicegate.engine.checkpoint.storage import (
    DTYPES,
    Advance,
    Entry,
    Written,
    file_bytes,
    stored_dtype,
    write_safetensors,
)
from voicegate.engine.checkpoint.tokenizer import build_tokenizer
from voicegate.engine.config import EngineConfig
from voicegate.engine.interface import (
    AudioFormat,
    AudioReady,
    Codec,
    Done,
    Engine,
    Failed,
    UtteranceId,
    UtteranceRequest,
)
from voicegate.engine.loading.build import create_engine, set_threads
from voicegate.engine.loading.devices import choose_device
from voicegate.engine.loading.progress import Lines
from voicegate.engine.model.config import Family, ModelConfig
from voicegate.gateway.cli.convert import TerminalProgress

FULL: Final = Sizes()


class Ending(Enum):
    """When the LLM's speech ends."""

    DRAWN = "drawn"  # wherever a stop id comes up, within some ten tokens
    NEVER = "never-stop"  # at its length limit
    NATURAL = "natural"  # with its text


_MODEL_NAME: Final = "full-size-generated"
# 0.8 s: what a CPU renders in a minute.
_MAX_CLAUSE_TOKENS: Final = 20
_TEXT: Final = "Good morning, how are you?"


def make(directory: Path, sizes: AnySizes, *, never_stop: bool) -> None:
    started_s = time.perf_counter()
    for name in write_any_source(directory, sizes, never_stop=never_stop):
        print(f"{time.perf_counter() - started_s:6.1f} s  {name}", flush=True)


# --- a converted directory at once ------------------------------------------------------------------------------


def make_engine_dir(target: Path, sizes: AnySizes, options: ConvertOptions, ending: Ending) -> None:
    """The files that `make` and `voicegate convert` would give, without the gigabytes in between, and voices."""
    write_directory(target, list(_engine_items(target, sizes, options, ending)), TerminalProgress())


def _engine_items(target: Path, sizes: AnySizes, options: ConvertOptions, ending: Ending) -> Iterator[Item]:
    raw = raw_json(sizes, name=_MODEL_NAME, decoding=options.decoding)
    model = check_model_json(raw, name=_MODEL_NAME)
    tokenizer = _tokenizer(target, sizes, ending)
    worths = natural.Worths(model, tokenizer) if ending is Ending.NATURAL else None
    for part in PARTS:
        dtype = options.dtype_of(part)
        recipe = {"generated": asdict(sizes), "dtype": dtype, "ending": ending.value}
        write = partial(_write_generated, part, model, dtype, ending, worths)
        yield Item(f"{part}.safetensors", recipe, _part_bytes(part, model, dtype), write)
    yield bytes_item("tokenizer.json", tokenizer.to_str().encode())
    if model.family is Family.COSYVOICE3:
        write_noise = partial(write_flow_noise, progress=TerminalProgress())
        yield Item("flow_noise.safetensors", {}, flow_noise_bytes(), write_noise)
    if worths is None:
        yield _voice_item(VOICE_NAME, model)
    else:
        for number, prompt in enumerate(natural.prompts(worths), 1):
            yield _voice_item(f"{VOICE_NAME}-{number}", model, **asdict(prompt))
    yield bytes_item("model.json", json.dumps(raw, indent=1).encode() + b"\n")


def _write_generated(
    part: str,
    model: ModelConfig,
    dtype: str,
    ending: Ending,
    worths: natural.Worths | None,
    path: Path,
    advance: Advance,
) -> Written:
    state = generate(part, model, never_stop=ending is not Ending.DRAWN)
    if part == "llm" and worths is not None:
        natural.teach_lengths(state, model, worths)
    return write_safetensors(path, weights_entries(part, model, state, DTYPES[dtype]), advance=advance)


def _part_bytes(part: str, model: ModelConfig, dtype: str) -> int:
    shapes = expected_shapes(part, model)
    return file_bytes(
        Entry(name, shape, stored_dtype(name, shape, DTYPES[dtype]), partial(torch.empty, shape))
        for name, shape in shapes.items()
    )


def _voice_item(name: str, model: ModelConfig, **prompt: Any) -> Item:
    """`prompt`: of generated_voice."""
    recipe = {"generated": 1, **prompt}
    return Item(f"voices/{name}.safetensors", recipe, 0, partial(_write_voice, model, prompt))


def _write_voice(model: ModelConfig, prompt: Mapping[str, Any], path: Path, advance: Advance) -> Written:
    tensors, texts = generated_voice(model, **prompt)
    entries = [
        Entry(name, tuple(tensor.shape), tensor.dtype, partial(_same, tensor)) for name, tensor in tensors.items()
    ]
    return write_safetensors(path, entries, texts=texts, advance=advance)


def _same(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def _tokenizer(target: Path, sizes: AnySizes, ending: Ending) -> Tokenizer:
    """Through the files that a conversion reads, which stand beside the target for that long."""
    merges = natural.english_merges() if ending is Ending.NATURAL else None
    scratch = target.with_name(f"{target.name}.tokenizer")
    scratch.mkdir(parents=True, exist_ok=True)
    try:
        for name, content in tokenizer_files(sizes, merges).items():
            (scratch / name).write_text(content, encoding="utf-8")
        return build_tokenizer(scratch / "vocab.json", scratch / "merges.txt", specials=special_tokens_of(sizes))
    finally:
        for path in scratch.iterdir():
            path.unlink()
        scratch.rmdir()


# --- the proof --------------------------------------------------------------------------------------------------


class Stopwatch:
    """Seconds and the highest memory so far of each phase."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.phases: dict[str, dict[str, float]] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        print(f"{name} ...", file=sys.stderr, flush=True)
        started_s = time.perf_counter()
        yield
        figures = {
            "seconds": round(time.perf_counter() - started_s, 1),
            # The kernel counts in KiB, and never down; mapped files count while they are in memory.
            "peak_process_gb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9, 2),
        }
        if self._device.type == "cuda":
            figures["peak_device_gb"] = round(torch.cuda.max_memory_allocated(self._device) / 1e9, 2)
        self.phases[name] = figures


def check(source: Path, target: Path, device_name: str) -> dict[str, Any]:
    """Raises RuntimeError where the engine does not speak as it should."""
    config = EngineConfig(
        target,
        device=device_name,
        max_utterances=1,
        spare_voices=0,
        max_active_clauses=1,
        max_clause_tokens=_MAX_CLAUSE_TOKENS,
        lead_ms=3_600_000,
    )
    set_threads(config)
    device = choose_device(device_name)
    watch = Stopwatch(device)
    with watch.phase("convert"):
        convert(source, target, ConvertOptions(name=_MODEL_NAME), TerminalProgress())
    model = model_config(FULL)
    _write_voice(model, {}, target / "voices" / f"{VOICE_NAME}.safetensors", lambda _: None)
    engine = create_engine(config, on_progress=Lines(lambda line: print(line, file=sys.stderr, flush=True)))
    spoken = asyncio.run(_speak(engine, watch))
    with watch.phase("compare"):
        rows = list(compare_all(model, lambda part: _state(source, part), device))
    files = {str(path.relative_to(target)): path.stat().st_size for path in sorted(target.rglob("*.safetensors"))}
    return {
        "environment": environment.describe() | {"numpy": np.__version__},
        "model": {
            "name": _MODEL_NAME,
            "num_parameters": _num_parameters(model),
            # Made with --never-stop: the logits of such a head are four times as large, and so are their errors.
            "never_stops": not _state(source, "llm")["llm_decoder.weight"][model.llm.speech_token_size :].any(),
        },
        "file_bytes": files,
        "phases": watch.phases,
        "spoken": spoken,
        "precision": rows,
    }


async def _speak(engine: Engine, watch: Stopwatch) -> dict[str, Any]:
    with watch.phase("load and warm up"):
        await engine.start()
    pcm = b""
    with watch.phase("speak"):
        utterance_id = UtteranceId("full-size")
        engine.submit(UtteranceRequest(utterance_id, VOICE_NAME, AudioFormat(codec=Codec.PCM_S16LE)))
        engine.push_text(utterance_id, _TEXT)
        engine.end_text(utterance_id)
        while not isinstance(event := await engine.next_event(), Done):
            if isinstance(event, Failed):
                raise RuntimeError(event.message)
            if isinstance(event, AudioReady):
                pcm += b"".join(event.packets)
    await engine.close()
    samples = np.frombuffer(pcm, "<i2").astype(np.float64) / 32_768
    if not len(samples) or not np.abs(samples).max() > 0:
        raise RuntimeError("the engine spoke nothing")
    return {
        "text": _TEXT,
        "audio_ms": event.audio_ms,
        "is_truncated": event.is_truncated,
        "num_samples": len(samples),
        "rms": round(float(np.sqrt(np.mean(samples**2))), 5),
        "peak": round(float(np.abs(samples).max()), 5),
    }


def _state(source: Path, part: str) -> Mapping[str, torch.Tensor]:
    return load_weights(Source(source).weights(part), part)


def _num_parameters(model: ModelConfig) -> int:
    return sum(int(np.prod(shape)) for part in PARTS for shape in expected_shapes(part, model).values())


def table(report: Mapping[str, Any]) -> Iterator[str]:
    """The precision rows as Markdown."""
    yield "| part | stored | computed | output | error rms / max | relative | token |"
    yield "|---|---|---|---|---|---|---|"
    for row in report["precision"]:
        for output in ("hidden", "logit", "mel", "sample", "log_mel"):
            if f"{output}_rms" not in row:
                continue
            token = f"KL {row['kl_nats']:.1e}, same {row['same_best_token']:.3f}" if output == "logit" else ""
            yield (
                f"| {row['part']} | {row['stored']} | {row['computed']} | {output} "
                f"| {row[f'{output}_rms_error']:.1e} / {row[f'{output}_max_error']:.1e} "
                f"| {row[f'{output}_relative_error']:.1e} | {token} |"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    never_stop = argparse.ArgumentParser(add_help=False)
    never_stop.add_argument("--never-stop", action="store_true", help="speech lasts to its length limit")
    making = commands.add_parser("make", parents=[never_stop])
    making.add_argument("source", type=Path)
    making.add_argument("--family", choices=FULL_SIZES, default=Family.COSYVOICE3.value)
    checking = commands.add_parser("check")
    checking.add_argument("source", type=Path)
    checking.add_argument("target", type=Path)
    checking.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    checking.add_argument("--output", type=Path, help="default: bench/results/full-size-DEVICE.json")
    direct = commands.add_parser("engine-dir")
    direct.add_argument("target", type=Path)
    direct.add_argument("--family", choices=FULL_SIZES, default=Family.COSYVOICE3.value)
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
        print("\n".join(table(report)))


if __name__ == "__main__":
    main()
