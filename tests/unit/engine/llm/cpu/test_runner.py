"""TorchLlmRunner with decode.c: it says what it says without, alone as beside others, and only single lines go to C."""

from collections.abc import Sequence
from functools import cache

import pytest
import torch

from tests.parity.test_llm_tiny_model import config, prompt, reference, state_dict
from tests.unit.engine.llm.cpu.support import VECTORS, config_of, random_state
from tests.unit.engine.llm.support import drain, tokens
from voicegate.engine.llm.backend import LlmPrompt, SequenceRequest
from voicegate.engine.llm.cpu import decoder
from voicegate.engine.llm.cpu.decoder import CpuDecoder
from voicegate.engine.llm.torch.kv_cache import RaggedAttention
from voicegate.engine.llm.torch.model import HEAD, LlmModel
from voicegate.engine.llm.torch.runner import TorchLlmRunner
from voicegate.engine.model.config import SamplingConfig

pytestmark = pytest.mark.skipif(not VECTORS, reason="decode.c is not written for this processor")

CONFIG = config_of(4, 2)
STATE = random_state(CONFIG)
STATE[HEAD][CONFIG.speech_token_size :] = 0  # seldom drawn: it speaks for long
PROMPT = LlmPrompt((1, 2, 3, 9), (5, 6))


def small_runner() -> TorchLlmRunner:
    return TorchLlmRunner(CONFIG, SamplingConfig(), STATE, num_slots=6, max_positions=90)


def request(number: int) -> SequenceRequest:
    """Every other one reads its text piece by piece: some of its feeds are longer than others."""
    return SequenceRequest(
        number, PROMPT, tuple(range(10, 12 + number)), is_streaming=number % 2 == 1, seed=number, max_tokens=30
    )


@cache
def alone(number: int) -> list[int]:
    runner = small_runner()
    runner.add(request(number))
    if number % 2 == 1:
        runner.end_text(number)
    return tokens(drain(runner)[number])


@pytest.mark.parametrize("vectors", VECTORS)
def test_the_tiny_model_says_what_it_says_by_torch(monkeypatch: pytest.MonkeyPatch, vectors: str) -> None:
    monkeypatch.setattr(decoder, "vectors_of_processor", lambda: vectors)

    def spoken(*, has_kernel: bool) -> list[list[int]]:
        runner = TorchLlmRunner(
            config().llm, config().sampling, state_dict(), num_slots=4, max_positions=500, has_kernel=has_kernel
        )
        assert (runner._decoder is not None) is has_kernel
        for number, voice in enumerate(("woman", "man", "woman", "man")):
            text, _ = reference(voice)
            runner.add(SequenceRequest(number, prompt(voice), text, is_streaming=False, seed=number, max_tokens=60))
        outputs = drain(runner)
        return [tokens(outputs[number]) for number in range(4)]

    by_c = spoken(has_kernel=True)
    assert by_c == spoken(has_kernel=False)
    assert all(len(each) > 30 for each in by_c)


def test_a_batch_gives_what_each_gives_alone() -> None:
    """They begin at different steps, so that some are read while others decode."""
    runner = small_runner()
    said: dict[int, list[int]] = {number: [] for number in range(6)}
    for step in range(500):
        if step % 3 == 0 and step < 18:
            runner.add(request(step // 3))
            if step // 3 % 2 == 1:
                runner.end_text(step // 3)
        ready = [number for number in (3, 0, 5, 1, 4, 2) if runner.is_runnable(number)]
        if not ready and step >= 18:
            break
        for output in runner.step(ready):
            assert output.error is None
            said[output.sequence_id] += output.tokens
    assert said == {number: alone(number) for number in range(6)}
    assert len({tuple(each) for each in said.values()}) == 6


def test_single_lines_are_cs_and_longer_feeds_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    by_c: list[Sequence[int]] = []
    by_torch: list[int] = []
    forward_c, forward_torch = CpuDecoder.forward, LlmModel.forward

    def spy_c(
        self: CpuDecoder, embeddings: torch.Tensor, slots: Sequence[int], positions: Sequence[int]
    ) -> torch.Tensor:
        by_c.append(positions)
        return forward_c(self, embeddings, slots, positions)

    def spy_torch(self: LlmModel, embeddings: torch.Tensor, attention: RaggedAttention) -> torch.Tensor:
        by_torch.append(len(embeddings))
        return forward_torch(self, embeddings, attention)

    monkeypatch.setattr(CpuDecoder, "forward", spy_c)
    monkeypatch.setattr(LlmModel, "forward", spy_torch)
    runner = small_runner()
    runner.add(request(0))
    runner.step([0])
    length = len(PROMPT.text_ids) + len(PROMPT.speech_ids) + 4
    assert (by_c, by_torch) == ([], [length])
    runner.add(request(2))
    runner.step([2, 0])
    assert (by_c, by_torch) == ([[length]], [length, length + 2])
    runner.step([2, 0])
    assert (by_c, by_torch) == ([[length], [length + 2, length + 1]], [length, length + 2])
