"""A GPU without memory, at each step that many share: who took part ends, all is given back, others speak on."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.support.hollow_stages import hollow
from tests.support.tiny_engine import CONFIG, HandDrivenEngine
from voicegate.bench.standins.llm import HollowRunner
from voicegate.bench.standins.token2wav import HollowRenderer, HollowSolve
from voicegate.engine.flow.runner import FlowRunner
from voicegate.engine.interface import Cancelled, Done, Failed, SpeakingMode
from voicegate.engine.vocoder.runner import VocoderRunner

TEXT = "Good morning, and welcome back. The train to the coast leaves at nine."

STEPS = [
    (HollowRunner, "add"),
    (HollowRunner, "launch"),
    (FlowRunner, "begin"),
    (HollowSolve, "advance"),
    (VocoderRunner, "run"),
    (HollowRenderer, "render"),
]


@pytest.mark.parametrize("is_concurrent", [False, True])
@pytest.mark.parametrize("number", [0, 1, 3])
@pytest.mark.parametrize(("owner", "name"), STEPS, ids=lambda part: part if isinstance(part, str) else part.__name__)
def test_a_step_without_memory_ends_those_it_was_for(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, number: int, is_concurrent: bool
) -> None:
    models = hollow()
    free = models.held
    engine = HandDrivenEngine(CONFIG, replace(models.stages, is_concurrent=is_concurrent))
    calls = 0
    whole: Callable[..., Any] = getattr(owner, name)

    def short_of_memory(self: Any, *args: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == number + 1:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return whole(self, *args, **options)

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, short_of_memory)
        ids = [engine.submit(f"u{n}", seed=n, mode=list(SpeakingMode)[1 + n % 2]) for n in range(4)]
        for utterance_id in ids:
            engine.core.push_text(utterance_id, TEXT)
            engine.core.end_text(utterance_id)
            engine.step()
        engine.run()
    assert calls > number, "it came to that"
    all_events = [engine.heard[utterance_id].events for utterance_id in ids]
    assert [sum(isinstance(event, Done | Cancelled | Failed) for event in events) for events in all_events] == [1] * 4
    ends = [events[-1] for events in all_events]
    failed = [end for end in ends if isinstance(end, Failed)]
    assert failed
    assert {end.message for end in failed} == {"internal error while speaking this utterance"}
    assert models.held == free
    assert isinstance(engine.speak("after", [TEXT]).end, Done)
