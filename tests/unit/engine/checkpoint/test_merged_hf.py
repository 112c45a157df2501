"""One vocabulary for text and speech: ids, rows and files as a server of plain Qwen2 checkpoints expects them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from jinja2 import Environment
from safetensors import safe_open
from safetensors.torch import load_file
from tokenizers import Tokenizer

from tests.support.golden import COSYVOICE3_DIR
from tests.support.upstream_source import SMALL, RecordedProgress, make_source
from voicegate.bench.full_size.source import Sizes, model_config
from voicegate.engine.checkpoint import constants
from voicegate.engine.checkpoint.conversion import CheckpointError, ConvertOptions
from voicegate.engine.checkpoint.convert import convert
from voicegate.engine.model.qwen2 import MergedVocabulary

NUM_TEXT = SMALL.vocab_entries + 281
NUM_SPEECH = 6_761
NUM_ROWS = 7_424  # the next multiple of 128


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_source(tmp_path_factory.mktemp("source"))


@pytest.fixture(scope="module")
def merged(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("merged")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(constants, "check_excitation", lambda _: True)
        options = ConvertOptions(merged_hf_dir=directory / "hf")
        convert(source, directory / "model", options, RecordedProgress())
    return directory / "hf"


def test_released_ids() -> None:
    released = json.loads((COSYVOICE3_DIR / "special_token_ids.json").read_text())["merged_hf_checkpoint"]
    config = model_config(Sizes()).llm
    vocabulary = MergedVocabulary(config, released["text_vocab_size"])
    assert vocabulary.first_speech_id == released["speech_offset"]
    assert vocabulary.num_ids == released["new_vocab"]
    assert vocabulary.num_rows == released["padded_vocab"]
    assert vocabulary.eos_id == released["eos1"]
    texts = vocabulary.speech_token_texts()
    assert len(texts) == len(set(texts)) == released["speech_entries"]
    for name in ("sos", "eos1", "task_id", "fill"):
        assert texts.index(f"<|{name}|>") == released[name] - released["speech_offset"]
    assert (texts[0], texts[6_560], texts[6_565]) == ("<|s_0|>", "<|s_6560|>", "<|s_6565|>")


def test_files(merged: Path) -> None:
    assert {path.name for path in merged.iterdir()} == {
        *("config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"),
        "conversion.json",
    }
    with safe_open(merged / "model.safetensors", framework="pt") as file:
        assert file.metadata() == {"format": "pt"}


def test_tables(source: Path, merged: Path) -> None:
    upstream = torch.load(source / "llm.pt", weights_only=True)
    tensors = load_file(merged / "model.safetensors")
    assert {tensor.dtype for tensor in tensors.values()} == {torch.bfloat16}
    text_rows = upstream["llm.model.model.embed_tokens.weight"][:NUM_TEXT].bfloat16()
    for name, speech in (
        ("model.embed_tokens.weight", "speech_embedding.weight"),
        ("lm_head.weight", "llm_decoder.weight"),
    ):
        table = tensors[name]
        assert table.shape == (NUM_ROWS, SMALL.hidden)
        assert torch.equal(table[:NUM_TEXT], text_rows)
        assert torch.equal(table[NUM_TEXT : NUM_TEXT + NUM_SPEECH], upstream[speech].bfloat16())
        assert not table[NUM_TEXT + NUM_SPEECH :].any()


def test_names_are_those_of_qwen2(source: Path, merged: Path) -> None:
    upstream = torch.load(source / "llm.pt", weights_only=True)
    tensors = load_file(merged / "model.safetensors")
    body = {name.removeprefix("llm.model.") for name in upstream if name.startswith("llm.model.")}
    assert tensors.keys() == body
    for name in ("model.norm.weight", "model.layers.0.self_attn.q_proj.bias", "model.layers.0.mlp.down_proj.weight"):
        assert torch.equal(tensors[name], upstream[f"llm.model.{name}"].bfloat16())


def test_configuration(merged: Path) -> None:
    config = json.loads((merged / "config.json").read_text())
    assert (config["architectures"], config["vocab_size"]) == (["Qwen2ForCausalLM"], NUM_ROWS)
    assert (config["hidden_size"], config["num_hidden_layers"]) == (SMALL.hidden, SMALL.layers)
    assert (config["num_attention_heads"], config["num_key_value_heads"]) == (SMALL.heads, SMALL.kv_heads)
    assert (config["tie_word_embeddings"], config["torch_dtype"]) == (False, "bfloat16")
    assert config["eos_token_id"] == NUM_TEXT + 6_562
    generation = json.loads((merged / "generation_config.json").read_text())
    assert (generation["top_k"], generation["eos_token_id"]) == (25, NUM_TEXT + 6_562)


def test_tokenizer(merged: Path) -> None:
    tokenizer = Tokenizer.from_file(str(merged / "tokenizer.json"))
    assert tokenizer.get_vocab_size() == NUM_TEXT + NUM_SPEECH
    for text, id_ in (("<|s_0|>", 0), ("<|s_17|>", 17), ("<|sos|>", 6_561), ("<|eos1|>", 6_562), ("<|fill|>", 6_564)):
        assert tokenizer.encode(text).ids == [NUM_TEXT + id_]
    assert tokenizer.encode("<|endofprompt|>").ids == [SMALL.vocab_entries + 3]
    # Speech tokens must survive what drops special ones: a server's answer is made of them.
    assert tokenizer.decode([NUM_TEXT + 5, NUM_TEXT + 7], skip_special_tokens=True) == "<|s_5|><|s_7|>"


def test_chat_template(merged: Path) -> None:
    config = json.loads((merged / "tokenizer_config.json").read_text())
    template = Environment(autoescape=False).from_string(config["chat_template"])
    messages = [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "<|s_1|>"}]
    assert template.render(messages=messages) == "<|sos|>Hi.<|task_id|><|s_1|>"


def test_a_vocabulary_beyond_the_table_is_refused() -> None:
    config = replace(model_config(SMALL).llm, vocab_size=NUM_TEXT - 1)
    with pytest.raises(ValueError, match=f"{NUM_TEXT} text tokens, but the text table has {NUM_TEXT - 1} rows"):
        MergedVocabulary(config, NUM_TEXT)


def test_one_directory_cannot_be_both(source: Path, tmp_path: Path) -> None:
    options = ConvertOptions(merged_hf_dir=tmp_path / "model")
    with pytest.raises(CheckpointError, match="at once"):
        convert(source, tmp_path / "model", options, RecordedProgress())
