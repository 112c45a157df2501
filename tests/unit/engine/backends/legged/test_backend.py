"""The backend over either package: growing text, refusals, silence, death and the end. Its promises: tests/contract."""

import threading
from collections.abc import Sequence

import pytest
import torch

from tests.unit.engine.backends.legged.support import (
    CONFIG,
    MAX_POSITIONS,
    PACKAGES,
    PROMPT,
    TEXT,
    VOCABULARY,
    Endless,
    Package,
    SmallModel,
    outputs,
    request,
    tokens,
)
from voicegate.engine.device.lanes import Mark
from voicegate.engine.llm.backend import InvalidRequest, LlmDied, SequenceRequest

SOON_S = 0.5  # within which a busy machine runs a stand-in's thread


class Bell:
    """A waker that tells whether it was rung."""

    def __init__(self) -> None:
        self.rung = threading.Event()

    def wake(self) -> None:
        self.rung.set()

    def watch(self, mark: Mark) -> None:
        pass


@pytest.fixture(params=PACKAGES)
def package(request: pytest.FixtureRequest) -> Package:
    return PACKAGES[request.param]


def test_a_reading_finds_its_prefix_again(package: Package) -> None:
    with package.running(package.behaviour(Endless())) as made:
        made.backend.add(request(is_growing=True, max_tokens=60))
        found = []
        for text, until in ((TEXT[:2], 5), (TEXT, 10), (TEXT, None)):
            made.backend.read(0, text, until=until)
            found.append(outputs(made))
            assert (found[-1][-1].is_paused, found[-1][-1].is_final) == (until is not None, until is None)
        assert [len(tokens(each)) for each in found] == [5, 5, 50]
        # sos, the prompt's text, and what was known of the text; then all but the last token
        begun = 1 + len(PROMPT.text_ids) + 2
        again = 1 + len(PROMPT.text_ids) + len(TEXT) + 1 + len(PROMPT.speech_ids) + 10
        assert begun + again - 2 <= made.backend.counters["llm_cached_tokens"] <= begun + again


class FillIsNext(Endless):
    """An id that ends speech, of which the package is not told."""

    def __call__(self, ids: Sequence[int]) -> torch.Tensor:
        logits = super().__call__(ids).clone()
        if len(ids) == 1 + len(PROMPT.text_ids) + 2 + 1 + len(PROMPT.speech_ids) + 3:
            logits[VOCABULARY.first_speech_id + CONFIG.fill_id] = 100.0
        return logits


def test_a_reading_that_the_model_ends_pauses_at_once_and_its_leg_goes_no_further(package: Package) -> None:
    with package.running(package.behaviour(FillIsNext())) as made:
        made.backend.add(request(is_growing=True, max_tokens=60))
        made.backend.read(0, TEXT[:2], until=50)
        found = outputs(made)
        assert (len(tokens(found)), found[-1].is_paused, found[-1].is_spent) == (3, True, True)
        made.backend.read(0, TEXT, until=10)
        found = outputs(made)
        assert (len(tokens(found)), found[-1].is_paused, found[-1].is_spent) == (7, True, False)


def test_a_refused_sequence_fails_alone_and_so_do_text_rows_that_the_checkpoint_lacks(package: Package) -> None:
    behaviour = package.behaviour(SmallModel(), refuses=lambda ids: "no such prompt" if 31 in ids else None)
    with package.running(behaviour) as made:
        with pytest.raises(InvalidRequest):
            made.backend.add(SequenceRequest(0, PROMPT, (CONFIG.vocab_size,)))  # its id is speech's there
        made.backend.add(SequenceRequest(0, PROMPT, (31,), max_tokens=5))
        made.backend.add(request(1))
        ended = {each.sequence_id: each.error for each in outputs(made) if each.error or each.is_final}
    assert ended == {0: "the LLM's executor refused this sequence; see the log", 1: None}


@pytest.mark.parametrize("is_begun", [True, False])
def test_an_executor_that_falls_silent_is_found_out(package: Package, is_begun: bool) -> None:
    with package.running(first_token_timeout_s=SOON_S, token_timeout_s=SOON_S) as made:
        bell = Bell()
        made.backend.set_waker(bell)
        if is_begun:
            made.backend.add(request(max_tokens=80))
            made.backend.wait()
        package.falls_silent(made.llm)
        made.backend.add(request(1))
        with pytest.raises(LlmDied, match=rf"{package.name}: nothing has come of it for 0\.5 s, of any sequence"):
            outputs(made)
        assert bell.rung.is_set()
        made.backend.add(request(2))  # comes to nothing
        with pytest.raises(LlmDied):
            made.backend.poll()
        made.backend.abort(2)


@pytest.mark.parametrize("is_begun", [True, False])
def test_an_error_that_is_not_one_requests_own_is_its_death(package: Package, is_begun: bool) -> None:
    with package.running(package.behaviour(Endless())) as made:
        if is_begun:
            made.backend.add(request(max_tokens=150))
            made.backend.wait()
        made.llm.behaviour.breaks_with = RuntimeError("the executor has lost its device")
        made.backend.add(request(1))
        with pytest.raises(LlmDied, match=f"{package.name}: the executor has lost its device"):
            outputs(made)


def test_it_can_be_closed_while_it_speaks(package: Package) -> None:
    with package.running(package.behaviour(Endless())) as made:
        made.backend.add(request(max_tokens=MAX_POSITIONS))
        made.backend.wait()
        made.backend.close()
        made.backend.close()
        made.backend.abort(0)
        assert made.llm.is_shut_down
