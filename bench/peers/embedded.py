"""Writes a converted model, by default the embedded one, as upstream's classes load it, its voices in spk2info.pt.

python -m voicegate.bench.peers.embedded SRC [--model DST]
"""

import argparse
import json
import shutil
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import save_file

from voicegate.bench.environment import REPOSITORY
from voicegate.bench.full_size.source import Sizes, yaml_text
from voicegate.bench.peers.generated import write_speaker_model
from voicegate.bench.peers.reference import Reference, save
from voicegate.engine.checkpoint.tokenizer import END_OF_PROMPT
from voicegate.engine.flow.estimator import inverse_frequencies
from voicegate.engine.flow.weights import ESTIMATOR_PREFIX, INV_FREQ
from voicegate.engine.llm.torch.model import TEXT_TABLE, TIED_TEXT_HEAD
from voicegate.engine.load.family import PARTS
from voicegate.engine.model.model_json import load_model_config
from voicegate.engine.model.weights import load_state_dict
from voicegate.engine.text.tokenizer import TextTokenizer
from voicegate.engine.voices.store import load_voices
from voicegate.engine.voices.voice import Voice

UPSTREAM_END_OF_PROMPT: Final = 151_646  # a constant of its code; upstream_server.py has it mean this model's own id
_FILES: Final = ("llm.pt", "flow.pt", "hift.pt")
_TOKENIZER: Final = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "eos_token": "<|endoftext|>",
    "pad_token": "<|endoftext|>",
}
_QWEN2: Final = "CosyVoice-BlankEN"


def sizes_of(raw: dict[str, Any]) -> Sizes:
    """Those that upstream's yaml says; the rest of the LLM's are in its own config.json."""
    flow, hift = raw["flow"], raw["hift"]
    estimator = flow["decoder"]["estimator"]
    return Sizes(
        hidden=raw["llm"]["llm_input_size"],
        flow_channels=flow["pre_lookahead_layer"]["channels"],
        estimator_dim=estimator["dim"],
        estimator_depth=estimator["depth"],
        estimator_heads=estimator["heads"],
        estimator_head_dim=estimator["dim_head"],
        vocoder_channels=hift["base_channels"],
        f0_channels=hift["f0_predictor"]["cond_channels"],
        cfg_rate=flow["decoder"]["cfm_params"]["inference_cfg_rate"],
    )


def write(directory: Path, model_dir: Path) -> None:
    raw = json.loads((model_dir / "model.json").read_text())
    model, sizes = load_model_config(model_dir), sizes_of(raw)
    (directory / _QWEN2).mkdir(parents=True, exist_ok=True)
    (directory / "cosyvoice3.yaml").write_text(yaml_text(sizes), encoding="utf-8")
    for part, name in zip(PARTS, _FILES, strict=True):
        state = {key: tensor.float() for key, tensor in load_state_dict(model_dir / f"{part}.safetensors").items()}
        if part == "flow":
            state.setdefault(ESTIMATOR_PREFIX + INV_FREQ, inverse_frequencies(sizes.estimator_head_dim))
        if part == "llm":
            state.setdefault(TIED_TEXT_HEAD, state[TEXT_TABLE])  # upstream loads it, and a conversion leaves it out
        torch.save(state, directory / name)
        if part == "llm":
            _write_qwen2(directory / _QWEN2, raw["llm"]["qwen2"], state)
    shutil.copy(model_dir / "tokenizer.json", directory / _QWEN2)
    (directory / _QWEN2 / "tokenizer_config.json").write_text(json.dumps(_TOKENIZER))
    tokenizer = TextTokenizer.from_file(model_dir / "tokenizer.json", end_of_prompt_id=model.llm.end_of_prompt_id)
    voices = load_voices(model_dir, model)
    torch.save({name: _spoken_by(voice, tokenizer) for name, voice in voices.items()}, directory / "spk2info.pt")
    for name in ("campplus.onnx", "speech_tokenizer_v3.onnx"):  # it loads them; with its voices made nothing asks them
        write_speaker_model(directory / name, model.flow.speaker_dim)
    voice = voices[model.default_voice or min(voices)]
    save(Reference("", voice.prompt_text, voice.name), directory)


def _write_qwen2(directory: Path, config: dict[str, Any], state: dict[str, torch.Tensor]) -> None:
    kinds = {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "torch_dtype": "float32"}
    (directory / "config.json").write_text(json.dumps({**kinds, **config}))
    names = {name: name.removeprefix("llm.model.") for name in state if name.startswith("llm.model.")}
    body = {short: state[name].clone() for name, short in names.items()}
    save_file(body, directory / "model.safetensors", metadata={"format": "pt"})


def _spoken_by(voice: Voice, tokenizer: TextTokenizer) -> dict[str, torch.Tensor]:
    """As `add_zero_shot_spk` leaves it."""
    instruction, transcript = voice.prompt_text.split(END_OF_PROMPT)
    ids = [*tokenizer.encode(instruction), UPSTREAM_END_OF_PROMPT, *tokenizer.encode(transcript)]
    text, tokens = torch.tensor([ids], dtype=torch.int32), voice.speech_tokens[None].int()
    parts = {
        "prompt_text": text,
        "llm_prompt_speech_token": tokens,
        "flow_prompt_speech_token": tokens,
        "prompt_speech_feat": voice.mel[None],
    }
    lengths = {f"{name}_len": torch.tensor([part.shape[1]], dtype=torch.int32) for name, part in parts.items()}
    embedding = voice.embedding[None]
    return {**parts, **lengths, "llm_embedding": embedding, "flow_embedding": embedding}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, metavar="SRC")
    parser.add_argument("--model", type=Path, default=REPOSITORY / "models" / "tiny", metavar="DST")
    options = parser.parse_args()
    write(options.directory, options.model)
