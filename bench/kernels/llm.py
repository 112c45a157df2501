"""The speech LLM's step and prefill on a GPU, by batch, at full size with random weights."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import torch

from voicegate.bench.kernels.floors import llm_prefill, llm_step
from voicegate.bench.kernels.llm_model import FULL_SIZE, fill_work, random_state_dict
from voicegate.bench.kernels.timing import back_to_back_us
from voicegate.engine.llm.cuda.body import DecoderBody
from voicegate.engine.llm.cuda.config import CudaLlmConfig
from voicegate.engine.llm.cuda.runner import CudaLlmRunner
from voicegate.engine.model.config import SamplingConfig

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


def print_table(title: str, rows: Sequence[tuple[object, ...]]) -> None:
    print(title)
    for row in rows:
        print("  ".join(f"{cell:9.2f}" if isinstance(cell, float) else f"{cell!s:>9}" for cell in row), flush=True)


def measure() -> dict[str, Any]:
    """Pairs are [measured, floor]."""
    runner = CudaLlmRunner(
        FULL_SIZE, SamplingConfig(), random_state_dict(FULL_SIZE), num_slots=NUM_SLOTS, max_positions=1024
    )
    runner.graphs.capture()
    body = runner.body
    report: dict[str, Any] = {"num_graphs": runner.graphs.num_graphs, "context": CONTEXT}
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
    return report
