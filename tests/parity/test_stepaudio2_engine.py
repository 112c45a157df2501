"""The engine over Step-Audio2's token2wav: what it says is what flow and vocoder make of the LLM's tokens."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.support.golden import TINY_MODEL_DIR, TINY_VOICES
from tests.support.stepaudio2_engine import config_for, flow_of, stages_of, with_memory, write_model
from tests.support.tiny_engine import HandDrivenEngine, Heard
from voicegate.engine import units
from voicegate.engine.core.stages import ReadyVoice, Stages, VoiceRoom
from voicegate.engine.families.stepaudio2.flow.stream import ChunkPrompt, ChunkStream
from voicegate.engine.interface import Alignment, Done, EngineError, SpeakingMode, UtteranceId
from voicegate.engine.load.build import load_engine
from voicegate.engine.load.devices import open_device
from voicegate.engine.load.progress import SILENT
from voicegate.engine.load.startup import ModelStart
from voicegate.engine.load.token2wav import load_flow
from voicegate.engine.model.model_json import load_model_config
from voicegate.engine.vocoder.backend import VocoderJob

TEXTS = ("Good morning.", "It rains, and the train is late.", "Yes.")


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("family") / "model")


@pytest.fixture(scope="module")
def shared(model_dir: Path) -> Stages:
    return stages_of(model_dir)


@pytest.fixture
def stages(shared: Stages) -> Iterator[Stages]:
    """Every test leaves them as it found them."""
    before = (shared.flow.num_free_blocks, shared.llm.num_free_slots)
    yield shared
    assert (shared.flow.num_free_blocks, shared.llm.num_free_slots) == before


@pytest.fixture
def opened(stages: Stages, monkeypatch: pytest.MonkeyPatch) -> list[ChunkStream]:
    """The flow's streams, in order."""
    flow, streams = flow_of(stages), []
    open_stream = flow.open

    def remembered(prompt: ChunkPrompt, *, begins_short: bool = False) -> ChunkStream:
        streams.append(open_stream(prompt, begins_short=begins_short))
        return streams[-1]

    monkeypatch.setattr(flow, "open", remembered)
    return streams


def begin(
    engine: HandDrivenEngine,
    name: str,
    text: str,
    *,
    voice: str = "woman",
    mode: SpeakingMode = SpeakingMode.CLAUSE,
    speed: float = 1.0,
) -> UtteranceId:
    utterance_id = engine.submit(name, voice=voice, mode=mode, speed=speed)
    for piece in text if mode is SpeakingMode.INCREMENTAL else (text,):
        engine.core.push_text(utterance_id, piece)
        if mode is SpeakingMode.INCREMENTAL:
            engine.run()
    engine.core.end_text(utterance_id)
    return utterance_id


def spoken(stages: Stages, text: str, **options: object) -> Heard:
    engine = HandDrivenEngine(stages=stages)
    utterance_id = begin(engine, "alone", text, **options)  # type: ignore[arg-type]
    engine.run()
    return engine.heard[utterance_id]


def samples(heard: Heard) -> torch.Tensor:
    return torch.from_numpy(np.frombuffer(heard.pcm, "<i2").astype(np.float32)) / 32767


def rendered(stages: Stages, tokens: list[int], voice: str = "woman") -> torch.Tensor:
    """Flow and vocoder over the tokens, with nothing in between."""
    flow = flow_of(stages)
    prompt = stages.voices[voice].flow_prompt.rendered
    assert isinstance(prompt, ChunkPrompt)
    stream, place, pieces = flow.open(prompt), stages.vocoder.open(), []
    stream.append(tokens)
    stream.finish()
    while stream.is_ready:
        batch = flow.begin([stream])
        while not batch.advance():
            pass
        (mel,) = batch.result()
        pieces += stages.vocoder.run([VocoderJob(place, mel, stream.is_exhausted)])
    flow.close(stream)
    stages.vocoder.close(place)
    return torch.cat(pieces).clamp(-1, 1)


def assert_alike(heard: Heard, expected: torch.Tensor) -> None:
    assert isinstance(heard.end, Done)
    assert heard.end.audio_ms == units.samples_to_ms(len(expected))
    # In 16 bits little is left of different batches' rounding.
    torch.testing.assert_close(samples(heard), expected, rtol=0, atol=2e-3)


@pytest.mark.parametrize("mode", [SpeakingMode.CLAUSE, SpeakingMode.BISTREAM, SpeakingMode.INCREMENTAL])
def test_speech_is_what_the_models_make_of_the_tokens(
    stages: Stages, opened: list[ChunkStream], mode: SpeakingMode
) -> None:
    heard = spoken(stages, TEXTS[1], mode=mode)
    (stream,) = opened
    assert len(stream.tokens) > 40  # several chunks
    assert_alike(heard, rendered(stages, stream.tokens))
    assert len(samples(heard)) == len(stream.tokens) * units.SAMPLES_PER_TOKEN
    words = [item for event in heard.events if isinstance(event, Alignment) for item in event.items]
    assert [word.text.strip(" ,.") for word in words] == TEXTS[1].replace(",", "").replace(".", "").split()
    assert all(first.end_ms <= second.start_ms for first, second in pairwise(words))


@pytest.mark.parametrize("speed", [0.7, 1.9])
def test_speed(stages: Stages, opened: list[ChunkStream], speed: float) -> None:
    heard = spoken(stages, TEXTS[1], speed=speed)
    num_frames = int(2 * len(opened[0].tokens) / speed)
    assert len(samples(heard)) == num_frames * units.SAMPLES_PER_FRAME


def test_a_voice_may_come_and_go_while_the_engine_speaks(stages: Stages) -> None:
    engine = HandDrivenEngine(stages=stages)
    known = stages.voices["woman"].voice
    answers: list[ReadyVoice | EngineError] = []
    begin(engine, "meanwhile", TEXTS[1])
    for _ in range(30):
        engine.step()
    engine.core.prepare_voice(replace(known, name="twin"), answers.append)
    engine.run()
    (ready,) = answers
    assert isinstance(ready, ReadyVoice)
    engine.core.install_voice(ready)
    twin = begin(engine, "twin", TEXTS[0], voice="twin")
    engine.core.remove_voice("twin")
    engine.run()
    assert_alike(engine.heard[twin], samples(spoken(stages, TEXTS[0])))


def test_where_memory_is_short_clauses_make_way_and_are_said_all_the_same(stages: Stages) -> None:
    """Admission believes that clauses are short, so that it is chunks that find no room."""
    expected = samples(spoken(stages, TEXTS[1]))
    num_free = stages.flow.num_speech_blocks(len(expected) // units.SAMPLES_PER_TOKEN) + 6  # for one and a bit
    tight = with_memory(stages, num_more_blocks=num_free)
    engine = HandDrivenEngine(config_for(TINY_MODEL_DIR, expected_tokens_per_text_token=1), tight)
    utterances = [begin(engine, f"u{number}", TEXTS[1]) for number in range(2)]
    engine.run()
    for utterance_id in utterances:
        assert_alike(engine.heard[utterance_id], expected)
    assert tight.flow.num_free_blocks == num_free


def test_what_upstream_trims_can_be_trimmed(model_dir: Path, stages: Stages) -> None:
    """Long speech differs from where the context is trimmed on, and memory is the same."""
    trimmed = stages_of(model_dir, flow_context="trimmed")
    tokens = (np.random.default_rng(1).integers(0, 6561, 120)).tolist()
    whole, literal = rendered(stages, tokens), rendered(trimmed, tokens)
    assert len(whole) == len(literal)
    num_alike = int((whole - literal).abs().gt(1e-3).nonzero()[0])
    assert num_alike >= (17 + 25) * units.SAMPLES_PER_TOKEN
    with pytest.raises(EngineError, match="flow_context trimmed is not for cosyvoice3 models"):
        load_engine(config_for(TINY_MODEL_DIR, flow_context="trimmed", threads=1), lambda _: None)


def test_products_that_the_family_has_not_are_refused(model_dir: Path) -> None:
    config, model = config_for(model_dir, flow_products="float8"), load_model_config(model_dir)
    start = ModelStart(torch.device("cpu"), SILENT)
    with pytest.raises(EngineError, match="flow_products float8 is not for cosyvoice2-stepaudio2 models"):
        load_flow(config, model, open_device(config_for(model_dir)), room=VoiceRoom(), start=start)


def test_an_llm_that_is_held_too_short_is_refused(model_dir: Path) -> None:
    with pytest.raises(EngineError, match="llm_ahead_tokens is 40; this family's chunks need 53"):
        stages_of(model_dir, llm_ahead_tokens=40)


def test_the_engine_loads_warms_up_and_tells_what_it_is(model_dir: Path) -> None:
    loaded = load_engine(config_for(model_dir, threads=1), lambda _: None)
    loaded.close()
    assert (loaded.info.model, loaded.info.family) == ("tiny-stepaudio2", "cosyvoice2-stepaudio2")
    assert [voice.name for voice in loaded.info.voices] == TINY_VOICES
