"""Which engines the contract suite runs against. To add one: a name in ENGINES and a case in `create_case`.

An engine here needs a few short texts' worth of speed and nothing else; what it cannot be made to do, it leaves None.
"""

from collections.abc import AsyncIterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest

from tests.support.hollow_stages import hollow
from tests.support.patience import PATIENCE_S
from tests.support.replicas import RoutedEngine
from tests.support.tensorrt_llm.standin import installed
from tests.support.tensorrt_llm.tiny import babbling, failing_tensorrt_llm_of, tensorrt_llm_of
from tests.support.tiny_engine import self_scheduling_llm, tiny_engine
from voicegate.engine.audio.encoding import LocalEncoders
from voicegate.engine.fake.engine import FakeEngine, Fault, FaultKind, Script
from voicegate.engine.interface import Engine

ENGINES = ("fake", "replicas", "tiny", "self-scheduling", "tensorrt-llm")


@dataclass(frozen=True)
class Case:
    engine: Engine  # not started
    # An engine whose first submitted utterance fails while the others go on; None where that cannot be arranged.
    failing_engine: Engine | None = None
    # An engine with room for two utterances; None where the room cannot be chosen.
    small_engine: Engine | None = None
    # An engine that runs and can serve nobody; None where that cannot be arranged.
    troubled_engine: Engine | None = None
    text: str = "One two three, four five six. "  # takes the engine long enough to be cancelled within
    timeout_s: float = PATIENCE_S


class NoEncoders(LocalEncoders):
    unready_reason = "no encoder is alive"


def create_case(name: str, stack: ExitStack) -> Case:
    """Creates a case, and enters its resources into the stack."""
    match name:
        case "fake":
            return Case(
                engine=FakeEngine(),
                failing_engine=FakeEngine(Script(faults={0: Fault(FaultKind.FAIL, after_ms=120)})),
                small_engine=FakeEngine(Script(max_utterances=2)),
                troubled_engine=FakeEngine(trouble="out of tones"),
            )
        case "replicas":
            failing = Script(faults={0: Fault(FaultKind.FAIL, after_ms=120)})
            small, troubled = Script(max_utterances=1), partial(FakeEngine, trouble="out of tones")
            return Case(
                engine=RoutedEngine(FakeEngine, FakeEngine),
                failing_engine=RoutedEngine(partial(FakeEngine, failing), FakeEngine),
                small_engine=RoutedEngine(partial(FakeEngine, small), partial(FakeEngine, small)),
                troubled_engine=RoutedEngine(troubled, troubled),
            )
        case "tiny":
            return _tiny_case()
        case "self-scheduling":
            # Another way to drive an LLM: what it and its followers compute is no matter.
            return _tiny_case(llm_of=self_scheduling_llm, stages_of=lambda: hollow(num_slots=64).stages)
        case "tensorrt-llm":
            standin = stack.enter_context(installed(babbling()))
            failing_engine = tiny_engine(llm_of=partial(failing_tensorrt_llm_of, standin))
            return replace(_tiny_case(llm_of=tensorrt_llm_of), failing_engine=failing_engine)
        case _:
            raise AssertionError(f"no engine {name}")


def _tiny_case(**parts: Any) -> Case:
    return Case(
        # Odd text can make the model babble on: 2 s of a clause are enough to hear that it ends.
        engine=tiny_engine(stall_ms=350, max_clause_tokens=50, **parts),
        failing_engine=tiny_engine(breaks_first=True, **parts),
        small_engine=tiny_engine(max_utterances=2, **parts),
        troubled_engine=tiny_engine(encoders=NoEncoders(), **parts),
        text="One two three. ",
        timeout_s=120.0,
    )


@pytest.fixture(params=ENGINES)
async def case(request: pytest.FixtureRequest) -> AsyncIterator[Case]:
    with ExitStack() as stack:
        created = create_case(request.param, stack)
        yield created
        for engine in (created.engine, created.failing_engine, created.small_engine, created.troubled_engine):
            if engine is not None:
                await engine.close()
