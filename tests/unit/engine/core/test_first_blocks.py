"""How many tokens a pass's first block takes: fewer where it is a whole text's first."""

from dataclasses import replace
from functools import cache
from itertools import count
from typing import Any

import pytest
import torch

from tests.support.hollow_stages import hollow
from tests.support.tiny_engine import CONFIG, PCM, HandDrivenEngine, Heard
from voicegate.engine.config import EngineConfig
from voicegate.engine.core.roster import Roster
from voicegate.engine.core.stages import Stages
from voicegate.engine.flow.chunking import FirstBlocks
from voicegate.engine.interface import Done, SpeakingMode, UtteranceId, UtteranceRequest
from voicegate.engine.llm.torch.runner import TorchLlmRunner
from voicegate.engine.model.weights import load_state_dict

TEXT = "Good morning, and welcome back. How was it?"
TWO = replace(CONFIG, whole_first_block_tokens=CONFIG.first_block_tokens - 4)
SHORT, USUAL = True, False
CLAUSE, BISTREAM, INCREMENTAL = SpeakingMode.CLAUSE, SpeakingMode.BISTREAM, SpeakingMode.INCREMENTAL


@cache
def stages(config: EngineConfig = TWO) -> Stages:
    """Compute nothing: who begins with how many tokens is decided without."""
    first_blocks = FirstBlocks(usual=config.first_block_tokens, short=config.whole_first_block_tokens)
    return hollow(tokens_per_text_token=6, first_blocks=first_blocks).stages


@pytest.fixture
def begins(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For every rendering that was begun: whether it begins short."""
    flow, seen = stages().flow, []
    open_ = flow.open

    def noted(prompt: Any, *, begins_short: bool = False) -> Any:
        seen.append(begins_short)
        return open_(prompt, begins_short=begins_short)

    monkeypatch.setattr(flow, "open", noted)
    return seen


def spoken(mode: SpeakingMode, *, set_aside_at: int | None = None) -> bytes:
    engine = HandDrivenEngine(replace(TWO, llm_ahead_tokens=40), stages())
    utterance_id = engine.submit("u", mode=mode)
    engine.core.push_text(utterance_id, TEXT)
    engine.core.end_text(utterance_id)
    if set_aside_at is not None:
        for _ in range(set_aside_at):
            engine.step()
        (utterance,) = engine.core._roster
        engine.set_aside(utterance)
    engine.run()
    assert isinstance(engine.heard[utterance_id].end, Done)
    return engine.heard[utterance_id].pcm


def with_draws(monkeypatch: pytest.MonkeyPatch, tokens: dict[int, int]) -> HandDrivenEngine:
    """Whose LLM, of a family that but one id ends, draws `tokens` at these draws, counted from 1."""
    model = stages().model
    config = replace(model.llm, stop=replace(model.llm.stop, is_eos_alone=True))
    weights = load_state_dict(CONFIG.model_dir / "llm.safetensors")
    runner = TorchLlmRunner(config, model.sampling, weights, num_slots=2, max_positions=1000)
    sample, numbers = runner._sampler.sample, count(1)

    def drawn(*args: Any, **options: Any) -> torch.Tensor:
        token = sample(*args, **options)
        number = next(numbers)
        return torch.full_like(token, tokens[number]) if number in tokens else token

    monkeypatch.setattr(runner._sampler, "sample", drawn)
    return HandDrivenEngine(TWO, replace(stages(), llm=runner))


@pytest.mark.parametrize("mode", [CLAUSE, INCREMENTAL])
def test_of_a_whole_text_the_first_pass_begins_short_and_no_other(mode: SpeakingMode, begins: list[bool]) -> None:
    spoken(mode)
    assert begins == [SHORT, USUAL]


def test_where_when_text_came_is_to_change_nothing_none_does(begins: list[bool]) -> None:
    spoken(BISTREAM)
    assert begins == [USUAL]


def test_a_sentence_that_is_still_written_begins_as_what_follows_it_needs(begins: list[bool]) -> None:
    engine = HandDrivenEngine(TWO, stages())
    text = "Please put the milk back in the fridge when you are done with all of it."
    heard = engine.speak("u", [f"{word} " for word in text.split()], mode=INCREMENTAL)
    assert isinstance(heard.end, Done)
    assert SHORT not in begins


def test_a_sentence_that_is_still_written_is_a_later_one_too(begins: list[bool]) -> None:
    engine = HandDrivenEngine(TWO, stages())
    utterance_id = engine.submit("u", mode=INCREMENTAL)
    engine.core.push_text(utterance_id, "Good morning. And welcome back to the ")
    engine.run()
    engine.core.push_text(utterance_id, "show.")
    engine.core.end_text(utterance_id)
    engine.run()
    assert isinstance(engine.heard[utterance_id].end, Done)
    assert begins == [SHORT, USUAL]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"seed": 1}, USUAL),  # the same sound is promised, whatever the load
        ({"speed": 0.8}, SHORT),
        ({"speed": 1.25}, USUAL),  # of which too little would be heard before the second block
        ({"audio": replace(PCM, frame_ms=60)}, USUAL),
        ({"audio": replace(PCM, frame_ms=10)}, SHORT),
    ],
)
def test_what_was_asked_for_decides(options: dict[str, Any], expected: bool, begins: list[bool]) -> None:
    engine = HandDrivenEngine(TWO, stages())
    utterance_id = UtteranceId("u")
    engine.heard[utterance_id] = Heard()
    request = replace(UtteranceRequest(utterance_id, "woman", PCM, CLAUSE), **options)
    engine.core.submit(request, seed=1)
    engine.core.push_text(utterance_id, TEXT)
    engine.core.end_text(utterance_id)
    engine.run()
    assert begins == [expected, USUAL]


@pytest.mark.parametrize("drawn_at", [2, 4, 14])
def test_what_is_drawn_and_not_speech_is_waited_for_by_nobody(drawn_at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A family whose ids after the speech's are read on, but for one: its first block then takes a step more."""
    llm = stages().model.llm
    unheard = next(number for number in count(llm.speech_token_size) if number != llm.eos_id)
    engine = with_draws(monkeypatch, {drawn_at: unheard})
    heard = engine.speak("u", [TEXT])
    assert isinstance(heard.end, Done)
    assert heard.pcm


def test_where_many_have_work_nobody_begins_short(begins: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    """The second block would come too late; of many who come at once those before count, too."""
    monkeypatch.setattr(Roster, "are_many", lambda _, *, num_more=0: num_more > 1)
    engine = HandDrivenEngine(TWO, stages())
    for name in "abc":
        utterance_id = engine.submit(name)
        engine.core.push_text(utterance_id, "It rains.")
        engine.core.end_text(utterance_id)
    engine.run()
    assert begins == [SHORT, SHORT, USUAL]


def test_it_is_heard_after_fewer_tokens() -> None:
    num_tokens = {}
    for first, config in (("short", TWO), ("usual", CONFIG)):
        engine = HandDrivenEngine(config, stages(config))
        utterance_id = engine.submit("u")
        engine.core.push_text(utterance_id, TEXT)
        engine.core.end_text(utterance_id)
        (utterance,) = engine.core._roster
        while not engine.heard[utterance_id].pcm:
            assert engine.step()
        num_tokens[first] = utterance.clauses[0].num_rendered_tokens
        engine.core.cancel(utterance_id, None)
        engine.run()
    assert num_tokens == {"short": TWO.whole_first_block_tokens, "usual": CONFIG.first_block_tokens}


@pytest.mark.parametrize("steps", [12, 22, 33])
def test_who_made_way_goes_on_behind_the_same_beginning(steps: int, begins: list[bool]) -> None:
    alone = spoken(CLAUSE)
    begins.clear()
    assert spoken(CLAUSE, set_aside_at=steps) == alone
    assert begins[:2] == [SHORT, SHORT]
