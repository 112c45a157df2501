"""The speech LLM's step on a GPU, by batch, by kernel and on the host, at full size with random weights."""

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import torch

from voicegate.bench.full_size.stepaudio2 import StepAudio2Sizes, stepaudio2_config
from voicegate.bench.kernels.floors import llm_kernels, llm_prefill, llm_step
from voicegate.bench.kernels.llm_model import FULL_SIZE, fill_work, make_body, random_state_dict
from voicegate.bench.kernels.timing import back_to_back_us
from voicegate.engine.llm.backend import LlmPrompt, SequenceRequest
from voicegate.engine.llm.cuda.body import DecoderBody
from voicegate.engine.llm.cuda.config import CudaLlmConfig, TileTable
from voicegate.engine.llm.cuda.runner import CudaLlmRunner
from voicegate.engine.llm.cuda.weights import DecoderWeights
from voicegate.engine.model.config import PenaltySamplingConfig, Sampling, SamplingConfig

SECTIONS: Final = ("alone", "device", "host", "samplings")

BATCHES: Final = (1, 8, 32, 64, 128, 256, 384, 512)
NUM_SLOTS: Final = 512
CONTEXT: Final = 300  # positions before the one that is decoded
PROMPT_LINES: Final = 180  # a voice of 5 s, its transcript and a sentence
_LINES_PER_PASS: Final = 1024


def captured_us(work: Callable[[], None]) -> float:
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(stream):
        work()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            work()
        return back_to_back_us(graph)


def step_us(body: DecoderBody, num_lines: int, num_samples: int, position: int) -> float:
    fill_work(body, num_lines, num_samples, position=position)

    def step() -> None:
        body.run(num_lines)
        body.sample(num_samples)

    return captured_us(step)


def alone_us(body: DecoderBody, position: int) -> dict[str, float]:
    """A single line's step, twice."""
    return {"launches": step_us(body, 1, 1, position), "launches again": step_us(body, 1, 1, position)}


def prefill_us(body: DecoderBody, num_prompts: int) -> float:
    """Prompts of PROMPT_LINES positions, in passes of up to _LINES_PER_PASS."""
    total = 0.0
    lines = np.arange(num_prompts * PROMPT_LINES)
    for first in range(0, len(lines), _LINES_PER_PASS):
        part = lines[first : first + _LINES_PER_PASS]
        fill_work(body, _LINES_PER_PASS, 16, position=0)
        words = body.work.cpu().numpy()
        records = body.layout.lines(words, _LINES_PER_PASS)
        records[:, 1] = body.padding_slot
        records[: len(part), 0] = part % FULL_SIZE.vocab_size
        records[: len(part), 1] = part // PROMPT_LINES
        records[: len(part), 2] = part % PROMPT_LINES
        body.work.copy_(torch.from_numpy(words))
        num_lines = next(bucket for bucket in CudaLlmConfig().line_buckets if bucket >= len(part))

        def run(num_lines: int = num_lines) -> None:
            body.run(num_lines)
            body.sample(min(num_prompts, 16))

        total += captured_us(run)
    return total


def kernel_us(body: DecoderBody, num_lines: int) -> dict[str, tuple[float, float]]:
    """Per launch, each kernel over all layers one after the other, so that weights come from memory; and its floor."""
    fill_work(body, num_lines, num_lines, position=CONTEXT)
    layers = range(FULL_SIZE.num_layers)
    launches: dict[str, Callable[[int, int], None]] = {
        "qkv": body.project_qkv,
        "attend": body.attend,
        "out": body.project_out,
        "gate_up": body.project_gate_up,
        "down": body.project_down,
        "head": lambda _, count: body.score(count),
        "draw": lambda _, count: body.draw(count),
    }
    costs = llm_kernels(FULL_SIZE, num_lines, CONTEXT + 1)
    figures = {}
    for name, launch in launches.items():

        def over_layers(launch: Callable[[int, int], None] = launch) -> None:
            for layer in layers:
                launch(layer, num_lines)

        figures[name] = (captured_us(over_layers) / len(layers), costs[name].floor_us())
    return figures


def host_us(runner: CudaLlmRunner, num_sequences: int, *, num_steps: int = 60) -> dict[str, float]:
    """Real decoding one step ahead: the host's time in launch and outputs, and the time of a whole step."""
    assert FULL_SIZE.end_of_prompt_id is not None
    prompt = LlmPrompt((FULL_SIZE.end_of_prompt_id,), tuple(range(100)))
    for index in range(num_sequences):
        runner.add(SequenceRequest(index, prompt, tuple(range(40)), seed=index))
    ids = list(range(num_sequences))
    runner.step(ids)
    launches, outputs = [], []
    runner.launch(ids)
    begun_s = time.perf_counter()
    for _ in range(num_steps):
        started_s = time.perf_counter()
        runner.launch(ids)
        launches.append(time.perf_counter() - started_s)
        num_fetched = runner.num_fetched
        while runner.num_fetched == num_fetched:
            polled_s = time.perf_counter()
            runner.poll()
        outputs.append(time.perf_counter() - polled_s)
    step_s = (time.perf_counter() - begun_s) / num_steps
    runner.wait()
    runner.poll()
    for index in ids:
        runner.abort(index)
    return {
        "launch": 1e6 * float(np.median(launches)),
        "outputs": 1e6 * float(np.median(outputs)),
        "step": 1e6 * step_s,
    }


def print_table(title: str, rows: Sequence[tuple[object, ...]]) -> None:
    print(title)
    for row in rows:
        print("  ".join(f"{cell:9.2f}" if isinstance(cell, float) else f"{cell!s:>9}" for cell in row), flush=True)


def make_runner(state: dict[str, torch.Tensor]) -> CudaLlmRunner:
    runner = CudaLlmRunner(FULL_SIZE, SamplingConfig(), state, num_slots=NUM_SLOTS, max_positions=1024)
    runner.graphs.capture()
    return runner


def device_part(runner: CudaLlmRunner) -> dict[str, Any]:
    body = runner.body
    report: dict[str, Any] = {"context": CONTEXT}
    report["decode_us"] = {
        batch: (step_us(body, batch, batch, CONTEXT), llm_step(FULL_SIZE, batch, batch, CONTEXT + 1).floor_us())
        for batch in BATCHES
    }
    print_table("decode step: batch, us, floor", [(batch, *pair) for batch, pair in report["decode_us"].items()])
    report["prefill_us"] = {
        count: (
            prefill_us(body, count),
            llm_prefill(FULL_SIZE, count, PROMPT_LINES, lines_per_pass=_LINES_PER_PASS).floor_us(),
        )
        for count in (1, 4, 16)
    }
    title = f"prefill of {PROMPT_LINES} lines: prompts, us, floor"
    print_table(title, [(count, *pair) for count, pair in report["prefill_us"].items()])
    report["kernel_us"] = {batch: kernel_us(body, batch) for batch in (1, 64, 256)}
    for batch, figures in report["kernel_us"].items():
        print_table(f"kernel at batch {batch}: us, floor", [(name, *pair) for name, pair in figures.items()])
    return report


def alone_part(runner: CudaLlmRunner) -> dict[str, Any]:
    report = {position: alone_us(runner.body, position) for position in (100, 200, 300, 400, 500)}
    names = report[100].keys()
    rows = [(position, *(figures[name] for name in names)) for position, figures in report.items()]
    print_table(f"a single line's step: position, us by {', '.join(names)}", rows)
    return {"alone_us": report}


def host_part(runner: CudaLlmRunner) -> dict[str, Any]:
    figures = {count: host_us(runner, count) for count in (1, 64, 256, 400)}
    print_table("host: sequences, launch, outputs, step us", [(n, *found.values()) for n, found in figures.items()])
    return {"host_us": figures}


def samplings_part() -> dict[str, Any]:
    """The second family's decode step, its head with bias, by either of the ways that it can be sampled."""
    config = stepaudio2_config(StepAudio2Sizes()).llm
    weights = DecoderWeights(config, random_state_dict(config), device=torch.device("cuda"), dtype=torch.bfloat16)
    kinds: dict[str, Sampling] = {"repetition-aware": SamplingConfig(), "repetition-penalty": PenaltySamplingConfig()}
    figures: dict[str, dict[int, float]] = {}
    for name, sampling in kinds.items():
        body = make_body(config, weights, TileTable(), sampling=sampling)
        figures[name] = {batch: step_us(body, batch, batch, CONTEXT) for batch in BATCHES}
    rows = [(batch, *(figures[name][batch] for name in kinds)) for batch in BATCHES]
    print_table(f"second family's decode step: batch, us by {', '.join(kinds)}", rows)
    return {"sampling_us": figures}


def measure(sections: Sequence[str]) -> dict[str, Any]:
    """Pairs are [measured, floor]."""
    report: dict[str, Any] = samplings_part() if "samplings" in sections else {}
    if set(sections) <= {"samplings"}:
        return report
    runner = make_runner(random_state_dict(FULL_SIZE))
    report["num_graphs"] = runner.graphs.num_graphs
    if "alone" in sections:
        report |= alone_part(runner)
    if "device" in sections:
        report |= device_part(runner)
    if "host" in sections:
        report |= host_part(runner)
    return report
