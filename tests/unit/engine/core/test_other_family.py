"""The loop over another family of token2wav: chunks that grow, blocks of another size, another lookahead."""

from dataclasses import replace

import numpy as np
import pytest

from tests.support.other_family import OtherFlow, frames_of, other_stages
from tests.support.tiny_engine import CONFIG, HandDrivenEngine, Heard
from voicegate.engine import units
from voicegate.engine.core.stages import Stages
from voicegate.engine.interface import Cancelled, Done, SpeakingMode, UtteranceId

TEXTS = ("Good morning.", "It rains, and the train is late again today.", "Yes.")


@pytest.fixture
def stages() -> Stages:
    return other_stages()


def flow_of(stages: Stages) -> OtherFlow:
    assert isinstance(stages.flow, OtherFlow)
    return stages.flow


def begin(engine: HandDrivenEngine, name: str, text: str, voice: str = "woman", **options: object) -> UtteranceId:
    utterance_id = engine.submit(name, voice=voice, **options)  # type: ignore[arg-type]
    if options.get("mode") is SpeakingMode.INCREMENTAL:
        for letter in text:
            engine.core.push_text(utterance_id, letter)
            engine.run()
    else:
        engine.core.push_text(utterance_id, text)
    engine.core.end_text(utterance_id)
    return utterance_id


def samples(heard: Heard) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    return np.frombuffer(heard.pcm, "<i2").astype(np.int64)


def assert_alike(heard: Heard, other: Heard) -> None:
    assert len(heard.pcm) == len(other.pcm) > 0
    assert abs(samples(heard) - samples(other)).max() <= 1


@pytest.mark.parametrize("mode", [SpeakingMode.CLAUSE, SpeakingMode.BISTREAM, SpeakingMode.INCREMENTAL])
def test_speech_is_all_of_its_tokens_in_order(stages: Stages, mode: SpeakingMode) -> None:
    engine = HandDrivenEngine(stages=stages)
    spoken = begin(engine, "u", TEXTS[1], mode=mode)
    engine.run()
    heard = engine.heard[spoken]
    assert isinstance(heard.end, Done)
    (stream,) = flow_of(stages).opened
    wanted = frames_of(stream.tokens).repeat_interleave(units.SAMPLES_PER_FRAME).numpy() * 32767
    assert len(wanted) == len(stream.tokens) * units.SAMPLES_PER_TOKEN == len(heard.pcm) // 2
    assert abs(samples(heard) - wanted).max() <= 2


def test_batched_is_alone(stages: Stages) -> None:
    alone = []
    for text in TEXTS:
        engine = HandDrivenEngine(stages=stages)
        utterance_id = begin(engine, "alone", text)
        engine.run()
        alone.append(engine.heard[utterance_id])
    engine = HandDrivenEngine(stages=stages)
    together = [begin(engine, f"u{number}", text) for number, text in enumerate(TEXTS)]
    engine.run()
    assert engine.core.counters["flow_rows"] > engine.core.counters["flow_steps"], "nothing was batched"
    for utterance_id, expected in zip(together, alone, strict=True):
        assert_alike(engine.heard[utterance_id], expected)


def test_a_cancel_and_the_end_give_everything_back(stages: Stages) -> None:
    flow, engine = flow_of(stages), HandDrivenEngine(stages=stages)
    num_free = flow.num_free_blocks
    cancelled, other = begin(engine, "cancelled", TEXTS[1]), begin(engine, "other", TEXTS[0])
    while flow.num_free_blocks > num_free - 10:
        engine.step()
    engine.core.cancel(cancelled, None)
    engine.run()
    assert isinstance(engine.heard[cancelled].end, Cancelled)
    assert isinstance(engine.heard[other].end, Done)
    assert (flow.num_free_blocks, flow.num_open) == (num_free, 0)


def test_where_memory_is_short_a_chunk_of_several_blocks_waits_for_room() -> None:
    """Room for one clause and a bit: chunks of the second need more blocks than are free, until the first has ended."""
    plenty = HandDrivenEngine(stages=other_stages())
    expected = begin(plenty, "u", TEXTS[1])
    plenty.run()
    num_voice_blocks = 400 - flow_of(other_stages()).num_free_blocks
    stages = other_stages(num_blocks=num_voice_blocks + 30)
    # Admission believes that clauses are short, so that it is the chunks that find no room.
    engine = HandDrivenEngine(replace(CONFIG, expected_tokens_per_text_token=1), stages)
    utterances = [begin(engine, f"u{number}", TEXTS[1]) for number in range(2)]
    engine.run()
    for utterance_id in utterances:
        assert isinstance(engine.heard[utterance_id].end, Done)
        assert_alike(engine.heard[utterance_id], plenty.heard[expected])
    assert flow_of(stages).num_free_blocks == 30
