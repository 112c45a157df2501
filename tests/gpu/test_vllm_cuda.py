"""vLLM itself behind the seam, where it is installed: sequences side by side, cancelling, and text that grows.

The checkpoint is generated, with two layers of the released width: what is said means nothing, and how it comes does.
"""

import time
from collections.abc import Iterator
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from tests.support.upstream_source import RecordedProgress
from voicegate.bench.full_size.source import Sizes, write_source
from voicegate.engine.backends.vllm.addition import ADDITION
from voicegate.engine.checkpoint.conversion import ConvertOptions
from voicegate.engine.checkpoint.convert import convert
from voicegate.engine.config import EngineConfig
from voicegate.engine.llm.backend import LlmBackend, LlmPrompt, SequenceOutput, SequenceRequest
from voicegate.engine.load.devices import open_device
from voicegate.engine.model.config import ModelConfig
from voicegate.engine.model.model_json import load_model_config

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore"),  # vLLM's own, and those of what it imports
    pytest.mark.skipif(find_spec("vllm") is None, reason="vllm is not installed: pip install '.[vllm]'"),
]

_SIZES = Sizes(
    layers=2,
    flow_channels=16,
    estimator_dim=32,
    estimator_depth=1,
    estimator_heads=1,
    estimator_head_dim=32,
    vocoder_channels=16,
    f0_channels=16,
)
_END_OF_PROMPT = 151_646  # without it the model takes no text
PROMPT, TEXT = LlmPrompt((1, 2, _END_OF_PROMPT), (5, 6, 7)), (10, 11, 12, 13)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LlmBackend, ModelConfig]]:
    place = tmp_path_factory.mktemp("vllm")
    source, target, merged = place / "source", place / "model", place / "merged"
    for _ in write_source(source, _SIZES, never_stop=True):
        pass
    convert(source, target, ConvertOptions(merged_hf_dir=merged), RecordedProgress())
    config = EngineConfig(Path(target), device="cuda", llm_backend="vllm", merged_hf_dir=merged, max_active_clauses=8)
    model = load_model_config(target)
    with closing(ADDITION.load(config, model, open_device(config), num_positions=600)) as backend:
        yield backend, model


def until(backend: LlmBackend, sequence_ids: set[int]) -> list[SequenceOutput]:
    """Until each of these has ended, or pauses."""
    found: list[SequenceOutput] = []
    left, due_s = set(sequence_ids), time.monotonic() + 120
    while left:
        assert time.monotonic() < due_s
        backend.wait()
        outputs = backend.poll()
        found += outputs
        left -= {each.sequence_id for each in outputs if each.is_final or each.is_paused or each.error}
    return found


def spoken(found: list[SequenceOutput], sequence_id: int) -> list[int]:
    return [token for each in found if each.sequence_id == sequence_id for token in each.tokens]


def test_sequences_side_by_side(made: tuple[LlmBackend, ModelConfig]) -> None:
    backend, model = made
    for number in range(8):
        backend.add(SequenceRequest(number, PROMPT, TEXT, max_tokens=40))
    found = until(backend, set(range(8)))
    for number in range(8):
        tokens = spoken(found, number)
        assert len(tokens) == 40
        assert all(0 <= token < model.llm.speech_token_size for token in tokens)
    assert not [each.error for each in found if each.error]
    assert backend.num_free_slots == 8


def test_what_is_cancelled_ends_and_the_next_one_speaks(made: tuple[LlmBackend, ModelConfig]) -> None:
    backend, _ = made
    backend.add(SequenceRequest(100, PROMPT, TEXT, max_tokens=500))
    backend.wait()
    backend.abort(100)
    assert backend.num_free_slots == 8
    backend.add(SequenceRequest(101, PROMPT, TEXT, max_tokens=20))
    assert len(spoken(until(backend, {101}), 101)) == 20


def test_text_that_grows_is_said_over_the_prefix_cache(made: tuple[LlmBackend, ModelConfig]) -> None:
    backend, _ = made
    before = backend.counters["llm_cached_tokens"]
    backend.add(SequenceRequest(200, PROMPT, (), max_tokens=60, is_growing=True))
    found = []
    for number, stop in ((2, 20), (4, 40)):
        backend.read(200, TEXT[:number], until=stop)
        found += until(backend, {200})
        assert len(spoken(found, 200)) == stop
    backend.read(200, TEXT, until=None)
    assert until(backend, {200})[-1].is_final
    assert backend.counters["llm_cached_tokens"] > before
    torch.cuda.synchronize()
