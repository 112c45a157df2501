"""The LLM's prompt before the text: by the kind of voice and by the instruction."""

import json
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers

from tests.unit.engine.llm.support import fed_ids, run_unistream, scripted, small_llm_config
from voicegate.engine.checks import check_instruct
from voicegate.engine.core.prompting import PassPrompt, PromptError, instruct_prompt, voice_prompt
from voicegate.engine.interface import BadRequest, EngineInfo, Unsupported
from voicegate.engine.llm.backend import LlmPrompt
from voicegate.engine.llm.bistream import Bistream
from voicegate.engine.llm.sequence import Unistream
from voicegate.engine.text.tokenizer import TextTokenizer
from voicegate.engine.voices.voice import Voice

BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())
END = len(BYTES)
PREFIX = "You are a helpful assistant.<|endofprompt|>"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> TextTokenizer:
    """Every byte is an id; <|endofprompt|> is the one special token."""
    plain = Tokenizer(models.BPE(vocab={char: index for index, char in enumerate(BYTES)}, merges=[]))
    plain.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    description = json.loads(plain.to_str())
    mark = {"id": END, "content": "<|endofprompt|>", "special": True}
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    path: Path = tmp_path_factory.mktemp("model") / "tokenizer.json"
    path.write_text(json.dumps(description | {"added_tokens": [mark | flags]}))
    return TextTokenizer.from_file(path, end_of_prompt_id=END)


def voice(*, prompt_text: str, transcript: str, num_tokens: int = 3) -> Voice:
    return Voice(
        name="anna",
        description="",
        prompt_text=prompt_text,
        transcript=transcript,
        speech_tokens=torch.arange(num_tokens),
        mel=torch.zeros(2 * num_tokens, 80),
        embedding=torch.zeros(192),
    )


def spelled(ids: tuple[int, ...], tokenizer: TextTokenizer) -> str:
    letters = {tokenizer.encode(char)[0]: char for char in map(chr, range(32, 127))}
    return "".join(letters.get(id_, "<END>") for id_ in ids)


@pytest.mark.parametrize("is_streaming", [False, True])
def test_zero_shot_has_transcript_and_speech(tokenizer: TextTokenizer, is_streaming: bool) -> None:
    prompt = voice_prompt(
        voice(prompt_text=f"{PREFIX}Hi there.", transcript="Hi there."), tokenizer, instruct_prefix=PREFIX
    )
    llm, text_ids = prompt.before([7, 8], is_streaming=is_streaming)
    assert spelled(llm.text_ids, tokenizer) == "You are a helpful assistant.<END>Hi there."
    assert llm.speech_ids == (0, 1, 2)
    assert text_ids == (7, 8)


@pytest.mark.parametrize("num_tokens", [3, 0])
def test_a_voice_without_transcript_is_cross_lingual(tokenizer: TextTokenizer, num_tokens: int) -> None:
    """No transcript, no speech; the prefix heads the text, or is what bistream feeds first."""
    of_voice = voice(prompt_text="", transcript="", num_tokens=num_tokens)
    prompt = voice_prompt(of_voice, tokenizer, instruct_prefix=PREFIX)
    llm, text_ids = prompt.before([7, 8], is_streaming=False)
    assert llm == LlmPrompt()
    assert text_ids == (*tokenizer.encode_prompt(PREFIX), 7, 8)
    llm, text_ids = prompt.before([7, 8], is_streaming=True)
    assert llm == LlmPrompt(tokenizer.encode_prompt(PREFIX))
    assert text_ids == (7, 8)


def test_a_voice_may_bring_its_own_prefix(tokenizer: TextTokenizer) -> None:
    prompt = voice_prompt(
        voice(prompt_text="Be buffered.<|endofprompt|>", transcript=""), tokenizer, instruct_prefix=PREFIX
    )
    assert spelled(prompt.llm.text_ids, tokenizer) == "Be buffered.<END>"
    assert prompt.is_head_of_text


def test_a_model_without_instructions_is_told_the_transcript_alone(tokenizer: TextTokenizer) -> None:
    prompt = voice_prompt(voice(prompt_text="Hi there.", transcript="Hi there."), tokenizer, instruct_prefix="")
    assert spelled(prompt.llm.text_ids, tokenizer) == "Hi there."
    assert prompt.llm.speech_ids == (0, 1, 2)
    prompt = voice_prompt(voice(prompt_text="", transcript=""), tokenizer, instruct_prefix="")
    assert prompt.before([7], is_streaming=False) == (LlmPrompt(), (7,))
    with pytest.raises(PromptError, match="which this model's have not"):
        voice_prompt(voice(prompt_text=f"{PREFIX}Hi.", transcript="Hi."), tokenizer, instruct_prefix="")


def test_the_prefix_counts_as_text_in_unistreams_limits() -> None:
    config = small_llm_config()
    prompt = PassPrompt(LlmPrompt((1, 2, config.end_of_prompt_id)), is_head_of_text=True)
    llm, text_ids = prompt.before((5,), is_streaming=False)
    recording = run_unistream(Unistream(config, llm, text_ids), scripted([9] * 1000))
    assert len(recording.yielded) == config.stop.max_length(3 + 1)
    llm, text_ids = prompt.before((5,), is_streaming=True)
    sequence = Bistream(config, llm)
    sequence.push_text(text_ids)
    sequence.end_text()
    assert sequence.feed is not None
    assert fed_ids(config, sequence.feed.rows) == [
        config.sos_id, 1, 2, config.end_of_prompt_id, 5, config.task_id
    ]  # fmt: skip


def test_without_text_there_is_nothing_but_the_prompt() -> None:
    prompt = PassPrompt(LlmPrompt((1, 2)), is_head_of_text=True)
    assert prompt.before((), is_streaming=False)[1] == ()


def test_a_prompt_text_without_its_mark_is_named(tokenizer: TextTokenizer) -> None:
    with pytest.raises(PromptError, match=r"'anna' lacks <\|endofprompt\|>: 'Hi there\.'"):
        voice_prompt(voice(prompt_text="Hi there.", transcript="Hi there."), tokenizer, instruct_prefix=PREFIX)
    with pytest.raises(PromptError, match="instruct_prefix"):
        instruct_prompt("Whisper.", tokenizer, instruct_prefix="You are a helpful assistant.")


def test_instruct_replaces_all_that_the_llm_knows_of_the_voice(tokenizer: TextTokenizer) -> None:
    prompt = instruct_prompt(" Speak slowly.\n", tokenizer, instruct_prefix=PREFIX)
    for is_streaming in (False, True):
        llm, text_ids = prompt.before([7], is_streaming=is_streaming)
        assert spelled(llm.text_ids, tokenizer) == "You are a helpful assistant. Speak slowly.<END>"
        assert llm.speech_ids == ()
        assert text_ids == (7,)


def test_a_model_without_prefix_is_told_the_instruction_alone(tokenizer: TextTokenizer) -> None:
    llm = instruct_prompt(" Speak slowly. ", tokenizer, instruct_prefix="").llm
    assert spelled(llm.text_ids, tokenizer) == "Speak slowly.<END>"


def test_marks_in_an_instruction_are_letters(tokenizer: TextTokenizer) -> None:
    prompt = instruct_prompt("a<|endofprompt|>b", tokenizer, instruct_prefix=PREFIX)
    assert prompt.llm.text_ids.count(END) == 1
    assert prompt.llm.text_ids[-1] == END


@pytest.mark.parametrize(
    ("instruct", "max_chars", "error", "part"),
    [
        ("Whisper.", 0, Unsupported, "'m' does not follow instructions"),
        ("x" * 21, 20, BadRequest, "has 21 characters; model 'm' takes 20"),
        ("<|im_start|>", 20, BadRequest, "plain words"),
        ("buffered|>", 20, BadRequest, "plain words"),
    ],
)
def test_instructions_that_are_refused(instruct: str, max_chars: int, error: type[Exception], part: str) -> None:
    info = EngineInfo("m", (), "anna", (), 312, 8, 3000, max_instruct_chars=max_chars)
    with pytest.raises(error, match=part):
        check_instruct(instruct, info)


@pytest.mark.parametrize(
    ("instruct", "max_chars"),
    [(None, 0), ("", 0), ("  ", 0), ("Whisper.", 8), ("请用广东话表达。", 20), ("a < b | c > d", 20)],
)
def test_instructions_that_are_taken(instruct: str | None, max_chars: int) -> None:
    check_instruct(instruct, EngineInfo("m", (), "anna", (), 312, 8, 3000, max_instruct_chars=max_chars))
