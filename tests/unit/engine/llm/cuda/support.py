"""A small network and runners of it; its CUDA runner works by Triton's interpreter, which takes its time."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache

import torch

from tests.support.lanes import LateLane, fetch_oldest
from tests.unit.engine.llm.support import drain, small_llm_config, small_state_dict
from voicegate.engine.llm.backend import LlmPrompt, SequenceOutput, SequenceRequest
from voicegate.engine.llm.cuda.config import AttentionTile, CudaLlmConfig, Tile, TileTable
from voicegate.engine.llm.cuda.runner import CudaLlmRunner
from voicegate.engine.llm.runner import LlmRunner
from voicegate.engine.llm.torch.runner import TorchLlmRunner
from voicegate.engine.model.config import LlmConfig, Sampling, SamplingConfig

REPETITION_AWARE = SamplingConfig()
CONFIG = replace(small_llm_config(), num_layers=1, mix_ratio=(2, 3))  # a fill every fourth token of a bistream
STATE = {name: tensor for name, tensor in small_state_dict().items() if ".layers.1." not in name}

_WIDE = ((1, Tile(16, 128, 32, 1)),)
# Few programs; `down` cut along k, as on a GPU.
TILES = TileTable(
    qkv=_WIDE,
    out=((1, Tile(16, 32, 32, 1)),),
    gate_up=_WIDE,
    down=((1, Tile(16, 32, 32, 1, num_splits=2)),),
    head=((1, Tile(16, 256, 32, 1)),),
    ahead=None,
    attention=AttentionTile(block_keys=32, decode_keys=64, num_stages=1, num_rows=16),
)


def make_runner(
    *,
    num_slots: int = 4,
    max_positions: int = 128,
    max_in_flight: int = 1,
    config: LlmConfig = CONFIG,
    sampling: Sampling = REPETITION_AWARE,
    state: Mapping[str, torch.Tensor] = STATE,
) -> CudaLlmRunner:
    return CudaLlmRunner(
        config,
        sampling,
        state,
        num_slots=num_slots,
        max_positions=max_positions,
        device="cpu",
        dtype=torch.float32,
        lane=LateLane(),
        cuda=CudaLlmConfig(max_in_flight=max_in_flight, line_buckets=(1, 4, 16), tiles=TILES),
    )


PROMPT = LlmPrompt((1, 2, 3, 9, 8), (5, 6, 7))


def request(
    sequence_id: int, *, seed: int = 0, num_text: int = 4, is_streaming: bool = False, max_tokens: int | None = 4
) -> SequenceRequest:
    text = tuple(range(10, 10 + num_text))
    return SequenceRequest(sequence_id, PROMPT, text, is_streaming=is_streaming, seed=seed, max_tokens=max_tokens)


def drain_ahead(runner: LlmRunner, *, depth: int, ids: Iterable[int] = range(10)) -> dict[int, list[SequenceOutput]]:
    """As `drain`, with up to `depth` steps in flight before the oldest is fetched."""
    outputs: dict[int, list[SequenceOutput]] = {}
    for _ in range(400):
        runnable = [sequence_id for sequence_id in ids if runner.is_runnable(sequence_id)]
        if runnable:
            runner.launch(runnable)
        if not runner.is_busy:
            return outputs
        if len(runner._in_flight) == depth or not runnable:
            for output in fetch_oldest(runner):
                outputs.setdefault(output.sequence_id, []).append(output)
    raise AssertionError("the sequences run on")


@cache
def reference(wanted: SequenceRequest) -> list[SequenceOutput]:
    """The CPU runner's output for a sequence alone, its text complete from the start."""
    runner = TorchLlmRunner(CONFIG, SamplingConfig(), STATE, num_slots=1, max_positions=128)
    runner.add(wanted)
    if wanted.is_streaming:
        runner.end_text(wanted.sequence_id)
    return drain(runner)[wanted.sequence_id]
