"""One voice that cannot be spoken with is left out of a start, which goes on; and the default voice is the model's."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.support.golden import TINY_MODEL_DIR, TINY_VOICES
from tests.support.hollow_stages import hollow, hollow_voice
from tests.support.tiny_engine import CONFIG
from tests.support.tiny_tokenizer import tiny_tokenizer
from voicegate.bench.standins.llm import HollowRunner
from voicegate.engine.core.stages import Stages
from voicegate.engine.core.voice_shelf import check_voice, ready_voice
from voicegate.engine.interface import EngineError, VoiceRefused
from voicegate.engine.llm.backend import SequenceRequest
from voicegate.engine.load import start_voices
from voicegate.engine.load.build import create_engine, engine_info, load_stages
from voicegate.engine.load.progress import Lines
from voicegate.engine.load.start_voices import default_of, fitting_voices, warm_up, without_silent
from voicegate.engine.model.model_json import load_model_config
from voicegate.engine.voices.store import load_voices
from voicegate.engine.voices.voice import Voice, save_voice

MODEL = load_model_config(TINY_MODEL_DIR)
UNNAMED = replace(MODEL, default_voice=None)
# Script that no vocabulary has words of: four tokens a character.
RARE = "\U0001fae0"


def with_transcript(name: str, transcript: str) -> Voice:
    voice = hollow_voice(name)
    return replace(voice, transcript=transcript, prompt_text=MODEL.instruct_prefix + transcript)


TOO_LONG = with_transcript("guest", "Hello there, it is very nice" + RARE * 570)


# --- by counting ----------------------------------------------------------------------------------------------


def test_a_transcript_that_leaves_a_sentence_no_room_is_refused_by_name() -> None:
    told = (
        r"^the transcript of voice 'guest' takes 2\d{3} of the model's text tokens, and at most 416 leave a sentence "
        "room after it: use a shorter recording"
    )
    with pytest.raises(VoiceRefused, match=told):
        check_voice(TOO_LONG, MODEL, tiny_tokenizer())
    with pytest.raises(VoiceRefused, match=told):
        ready_voice(TOO_LONG, MODEL, tiny_tokenizer(), hollow().flow)
    plain = "Hello there, it is very nice to meet you, and I wonder what it has been doing of late. " * 7
    check_voice(with_transcript("long", plain[:600]), MODEL, tiny_tokenizer())


def test_so_is_one_that_leaves_none_in_a_model_with_few_positions() -> None:
    few = replace(MODEL, llm=replace(MODEL.llm, max_positions=140))
    with pytest.raises(VoiceRefused, match="at most 6 leave a sentence room"):
        check_voice(hollow_voice("guest"), few, tiny_tokenizer())


def test_what_does_not_fit_is_left_out_of_a_start_with_an_error_line() -> None:
    voices = {"woman": hollow_voice("woman"), "guest": TOO_LONG}
    with capture_logs() as lines:
        fitting = fitting_voices(CONFIG, MODEL, voices, tiny_tokenizer())
    assert list(fitting) == ["woman"]
    assert [(line["event"], line["log_level"], line["voice"]) for line in lines] == [
        ("voice_left_out", "error", "guest")
    ]


def test_the_default_voice_is_not_left_out() -> None:
    voices = {"woman": replace(TOO_LONG, name="woman"), "guest": hollow_voice("guest")}
    with pytest.raises(EngineError, match=r"^the default voice, 'woman', cannot be spoken with: the transcript"):
        fitting_voices(CONFIG, MODEL, voices, tiny_tokenizer())


async def test_a_server_starts_with_such_a_voice_in_the_users_directory(tmp_path: Path) -> None:
    woman = load_voices(TINY_MODEL_DIR, MODEL)["woman"]
    guest = replace(TOO_LONG, speech_tokens=woman.speech_tokens, mel=woman.mel, embedding=woman.embedding)
    save_voice(guest, tmp_path / "guest.safetensors")
    engine = create_engine(replace(CONFIG, voices_dir=tmp_path, threads=1))
    await engine.start()
    try:
        assert [voice.name for voice in engine.info.voices] == TINY_VOICES
    finally:
        await engine.close()


# --- by speaking ----------------------------------------------------------------------------------------------


@pytest.fixture
def made() -> Stages:
    return with_voices("woman", "guest", "mute")


def with_voices(*names: str) -> Stages:
    """Each with a transcript that tells its name, by which a test's LLM knows it."""
    stages = hollow(num_blocks=400).stages
    voices = {name: with_transcript(name, f"I am {name}, and mind the gap to the platform.") for name in names}
    return replace(
        stages,
        voices={name: ready_voice(each, MODEL, stages.tokenizer, stages.flow) for name, each in voices.items()},
    )


def knows(stages: Stages, name: str) -> Callable[[SequenceRequest], bool]:
    return lambda request: request.prompt == stages.voices[name].llm_prompt.llm


def break_opening(monkeypatch: pytest.MonkeyPatch, is_bad: Callable[[SequenceRequest], bool]) -> None:
    add = HollowRunner.add
    monkeypatch.setattr(HollowRunner, "add", lambda runner, each: 1 / 0 if is_bad(each) else add(runner, each))


def break_shared_step(monkeypatch: pytest.MonkeyPatch, is_bad: Callable[[SequenceRequest], bool]) -> None:
    """Breaks all that are in a step with such a one."""
    add, launch = HollowRunner.add, HollowRunner.launch
    bad: set[int] = set()

    def noted(runner: HollowRunner, request: SequenceRequest) -> None:
        if is_bad(request):
            bad.add(request.sequence_id)
        add(runner, request)

    def broken(runner: HollowRunner, ids: Sequence[int]) -> Any:
        return 1 / 0 if bad.intersection(ids) else launch(runner, ids)

    monkeypatch.setattr(HollowRunner, "add", noted)
    monkeypatch.setattr(HollowRunner, "launch", broken)


@pytest.mark.parametrize("break_it", [break_opening, break_shared_step])
def test_who_does_not_speak_is_named_and_left_out(
    made: Stages, monkeypatch: pytest.MonkeyPatch, break_it: Callable[..., None]
) -> None:
    break_it(monkeypatch, knows(made, "mute"))
    num_free, num_held = made.flow.num_free_blocks, made.voices["mute"].flow_prompt.num_blocks
    with capture_logs() as lines:
        silent = warm_up(CONFIG, made, "woman")
        (left,) = without_silent(CONFIG, [made], silent)
    assert list(silent) == ["mute"]
    assert [line["voice"] for line in lines if line["event"] == "voice_left_out"] == ["mute"]
    assert list(left.voices) == ["woman", "guest"]
    assert [voice.name for voice in engine_info(CONFIG, left).voices] == ["woman", "guest"]
    assert left.flow.num_free_blocks - num_free == num_held > 0, "it is given back"


def test_where_nobody_or_the_default_voice_does_not_the_start_fails(
    made: Stages, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        break_opening(patched, lambda _: True)
        with capture_logs(), pytest.raises(EngineError, match="warm-up: 0 of 3 voices spoke; see the log"):
            warm_up(CONFIG, made, "woman")
    break_opening(monkeypatch, knows(made, "woman"))
    with capture_logs():
        silent = warm_up(CONFIG, made, "woman")
    with pytest.raises(EngineError, match="the default voice, 'woman', cannot be spoken with: internal error"):
        without_silent(CONFIG, [made], silent)


def test_of_many_voices_some_speak_and_the_default_one_among_them(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"v{number}" for number in range(10)]
    stages = with_voices(*names, "woman")
    spoke: list[str] = []
    open_voice = start_voices._speak

    def noted(config: Any, stages: Stages, names: Sequence[str]) -> Mapping[str, str]:
        spoke.extend(names)
        return open_voice(config, stages, names)

    monkeypatch.setattr(start_voices, "_speak", noted)
    assert warm_up(CONFIG, stages, "woman") == {}
    assert spoke == ["woman", *names[:7]]


def test_a_start_tells_how_many_prompts_are_ready() -> None:
    told: list[tuple[str, int, int]] = []
    progress = Lines(lambda _: None)
    voices = load_voices(TINY_MODEL_DIR, MODEL)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Lines, "share", lambda _, *share: told.append(share))
        load_stages(replace(CONFIG, threads=1), MODEL, voices, progress).llm.close()
    assert told == [("voice prompts", number, len(voices)) for number in range(1, len(voices) + 1)]


# --- the default voice ----------------------------------------------------------------------------------------


def test_a_voice_of_the_users_is_nobodys_default_by_its_name(tmp_path: Path) -> None:
    config = replace(CONFIG, model_dir=tmp_path / "model", voices_dir=tmp_path / "mine")
    (config.model_dir / "voices").mkdir(parents=True)
    assert default_of(config, UNNAMED, ["ben", "anna"]) == "anna", "the model has none of its own"
    for name in ("woman", "man"):
        shutil.copy(TINY_MODEL_DIR / "voices" / f"{name}.safetensors", config.model_dir / "voices")
    assert default_of(config, UNNAMED, ["anna", "man", "woman"]) == "man", "its first by name"
    assert default_of(config, MODEL, ["anna", "man", "woman"]) == "woman"
    assert default_of(config, replace(MODEL, default_voice="man"), ["anna", "man", "woman"]) == "man"


def test_a_pair_in_the_models_directory_is_its_own(tmp_path: Path) -> None:
    config = replace(CONFIG, model_dir=tmp_path)
    (tmp_path / "voices").mkdir()
    for name in ("cleo.wav", "cleo.txt", "bare.wav", "._dora.safetensors"):
        (tmp_path / "voices" / name).touch()
    assert default_of(config, UNNAMED, ["anna", "cleo", "bare"]) == "cleo"
