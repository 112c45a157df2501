"""Generated weights that stop with their text, spoken by the LLM's own runner."""

from dataclasses import replace
from pathlib import Path

import pytest
import tokenizers

from tests.support.upstream_source import SMALL
from tests.support.upstream_stepaudio2 import SMALL_STEPAUDIO2
from voicegate.bench.full_size.engine_dir import Ending, make_engine_dir
from voicegate.bench.full_size.families import AnySizes
from voicegate.bench.full_size.natural import PROMPT_TOKENS, SpeechCounts, english_merges
from voicegate.clients.bench.sentences import ENGLISH
from voicegate.engine.checkpoint import constants
from voicegate.engine.checkpoint.conversion import ConvertOptions, Decoding
from voicegate.engine.llm.backend import LlmPrompt, SequenceRequest
from voicegate.engine.llm.torch.runner import TorchLlmRunner
from voicegate.engine.model.model_json import load_model_config
from voicegate.engine.model.weights import load_metadata, load_state_dict

# With room for the merges, and layers behind the one that counts.
_LARGER = {"vocab_entries": 1_100, "text_rows": 1_400, "hidden": 64, "layers": 3}
_SIZES = replace(SMALL, **_LARGER)
_STEPAUDIO2_SIZES = replace(SMALL_STEPAUDIO2, **_LARGER)
# Text rows are worth what bfloat16 keeps of it, and rows differ in norm.
_NEARLY = 0.06


@pytest.mark.parametrize(
    ("sizes", "decoding"),
    [
        (_SIZES, Decoding.ORIGINAL),
        (_STEPAUDIO2_SIZES, Decoding.ORIGINAL),
        (_STEPAUDIO2_SIZES, Decoding.DEPLOYED),
    ],
)
def test_speech_ends_with_its_text_behind_every_prompt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sizes: AnySizes, decoding: Decoding
) -> None:
    monkeypatch.setattr(constants, "check_excitation", lambda _: True)
    directory = tmp_path / "model"
    make_engine_dir(directory, sizes, ConvertOptions(decoding=decoding), Ending.NATURAL)
    model = load_model_config(directory)
    tokenizer = tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))
    speech_counts = SpeechCounts(model, tokenizer)
    weights = load_state_dict(directory / "llm.safetensors")
    voices = sorted((directory / "voices").iterdir())
    assert len(voices) == len(PROMPT_TOKENS)
    runner = TorchLlmRunner(model.llm, model.sampling, weights, num_slots=len(voices), max_positions=1400)
    wanted: dict[int, float] = {}
    for number, voice in enumerate(voices):
        speech_ids = tuple(load_state_dict(voice)["speech_tokens"].tolist())
        assert abs(len(speech_ids) - PROMPT_TOKENS[number]) < 10
        text_ids = tokenizer.encode(load_metadata(voice)["prompt_text"], add_special_tokens=False).ids
        text = ENGLISH.sentences[number]
        ids = tuple(tokenizer.encode(text, add_special_tokens=False).ids)
        prompt = LlmPrompt(tuple(text_ids), speech_ids)
        runner.add(SequenceRequest(number, prompt, ids, is_streaming=False, seed=number, max_tokens=750))
        wanted[number] = speech_counts.of(text)
    spoken = dict.fromkeys(wanted, 0)
    while runnable := [number for number in wanted if runner.is_runnable(number)]:
        for output in runner.step(runnable):
            spoken[output.sequence_id] += len(output.tokens)
    for number, tokens in wanted.items():
        assert abs(spoken[number] - tokens) < _NEARLY * (tokens + PROMPT_TOKENS[number]), (spoken, wanted)


def test_a_text_token_is_about_four_letters_as_a_trained_models() -> None:
    merges = english_merges()
    model = tokenizers.models.BPE(vocab={text: index for index, text in enumerate(_entries(merges))}, merges=merges)
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    num_tokens = sum(len(tokenizer.encode(text).ids) for text in ENGLISH.sentences)
    assert 3.5 < sum(map(len, ENGLISH.sentences)) / num_tokens < 4.5


def _entries(merges: list[tuple[str, str]]) -> list[str]:
    return [*sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()), *dict.fromkeys("".join(pair) for pair in merges)]
