"""A model directory as far as it can be checked without torch: model.json, and the headers of its files.

safetensors: eight bytes of header length, a JSON header of names, types, shapes and offsets, then the data.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, assert_never

from voicegate.engine.model.config import Flow, FlowConfig, ModelConfig, ModelConfigError
from voicegate.engine.model.model_json import load_model_config
from voicegate.engine.model.stepaudio2 import StepAudio2FlowConfig
from voicegate.engine.units import FRAMES_PER_TOKEN, NUM_MELS
from voicegate.engine.voices.files import recordings, voice_files
from voicegate.engine.voices.pace import pace_in

_LENGTH_BYTES: Final = 8
_MAX_HEADER_BYTES: Final = 100 * 1024 * 1024  # the format's own limit


class UnfitFile(ValueError):
    """A file is missing or not what it should be; the message says which and why, in one line."""


@dataclass(frozen=True, slots=True)
class Header:
    shapes: Mapping[str, tuple[int, ...]]
    texts: Mapping[str, str]


def read_header(path: Path) -> Header:
    """Raises UnfitFile; also for a file that was cut short."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
            raw = file.read(length) if length <= _MAX_HEADER_BYTES else b""
        size = path.stat().st_size
    except OSError as error:
        raise UnfitFile(f"{path}: {error.strerror or error}") from error
    try:
        entries: dict[str, Any] = json.loads(raw)
        texts = {name: str(text) for name, text in entries.pop("__metadata__", {}).items()}
        shapes = {name: tuple(map(int, entry["shape"])) for name, entry in entries.items()}
        end = max((int(entry["data_offsets"][1]) for entry in entries.values()), default=0)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise UnfitFile(f"{path} is no safetensors file (a Git LFS pointer, perhaps?)") from error
    expected = _LENGTH_BYTES + length + end
    if size != expected:
        raise UnfitFile(f"{path} has {size} bytes where its header promises {expected}: fetch it again")
    return Header(shapes, texts)


def check_config(model_dir: Path) -> ModelConfig:
    """Raises UnfitFile."""
    try:
        return load_model_config(model_dir)
    except (ModelConfigError, OSError) as error:
        raise UnfitFile(str(error)) from error


def check_tokenizer(model_dir: Path) -> str:
    """What it is, in words. Raises UnfitFile."""
    path = model_dir / "tokenizer.json"
    try:
        content = json.loads(path.read_bytes())
        num_entries = len(content["model"]["vocab"]) + len(content.get("added_tokens", ()))
    except OSError as error:
        raise UnfitFile(f"{path}: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UnfitFile(f"{path} is no tokenizer of the tokenizers library") from error
    return f"{num_entries} entries"


def check_weights(model_dir: Path, model: ModelConfig, part: str) -> str:
    """What the file holds, in words. Checks the tensors that tell a wrong file. Raises UnfitFile."""
    path = model_dir / f"{part}.safetensors"
    header = read_header(path)
    for name, wanted in _landmarks(model)[part].items():
        shape = header.shapes.get(name)
        if shape is None:
            raise UnfitFile(f"{path} lacks {name}: it is not the {part} of this model")
        if shape != wanted:
            raise UnfitFile(f"{path}: {name} has shape {list(shape)}, model.json says {list(wanted)}")
    return f"{len(header.shapes)} tensors"


def check_voice(path: Path, model: ModelConfig) -> str:
    """Its description. Raises UnfitFile."""
    header = read_header(path)
    num_tokens, *_ = (*header.shapes.get("speech_tokens", ()), 0)  # a scalar has no length
    wanted = {
        "speech_tokens": (num_tokens,),
        "mel": (num_tokens * FRAMES_PER_TOKEN, NUM_MELS),
        "embedding": (model.flow.speaker_dim,),
    }
    for name, shape in wanted.items():
        if header.shapes.get(name) != shape:
            raise UnfitFile(f"{path}: {name} has shape {header.shapes.get(name)}, not {shape}")
    missing = [key for key in ("prompt_text", "transcript", "description") if key not in header.texts]
    if missing:
        raise UnfitFile(f"{path} lacks the text {', '.join(missing)}")
    try:
        pace_in(header.texts)
    except ValueError as error:
        raise UnfitFile(f"{path}: {error}; tune the voice again") from error
    return header.texts["description"]


def voice_paths(model_dir: Path) -> list[Path]:
    """Raises UnfitFile where there is none."""
    paths = list(voice_files(model_dir / "voices").values())
    if not paths:
        raise UnfitFile(f"{model_dir / 'voices'} holds no voice (*.safetensors)")
    return paths


def unmade_pairs(directories: Sequence[Path]) -> list[Path]:
    """Recordings with a text beside them and no voice made of them yet (engine/voices/directory.py)."""
    return [
        path
        for directory in directories
        for path in recordings(directory).values()
        if path.with_suffix(".txt").exists() and not path.with_suffix(".safetensors").exists()
    ]


def _landmarks(model: ModelConfig) -> dict[str, dict[str, tuple[int, ...]]]:
    """Tensors whose shapes depend on every size in model.json that matters; engine.build checks all of them."""
    llm, vocoder = model.llm, model.vocoder
    return {
        "llm": {
            "llm.model.model.embed_tokens.weight": (llm.vocab_size, llm.hidden_size),
            f"llm.model.model.layers.{llm.num_layers - 1}.input_layernorm.weight": (llm.hidden_size,),
            "speech_embedding.weight": (llm.num_table_rows, llm.hidden_size),
            "llm_decoder.weight": (llm.num_speech_rows, llm.hidden_size),
        },
        "flow": _flow_landmarks(model.flow),
        "vocoder": {
            "conv_pre.bias": (vocoder.base_channels,),
            "conv_post.bias": (vocoder.stft_size + 2,),
        },
    }


def _flow_landmarks(flow: Flow) -> dict[str, tuple[int, ...]]:
    estimator = flow.estimator
    attention_width = estimator.num_heads * estimator.head_dim
    shapes: dict[str, tuple[int, ...]] = {"spk_embed_affine_layer.weight": (NUM_MELS, flow.speaker_dim)}
    match flow:
        case FlowConfig():
            last_block = f"decoder.estimator.transformer_blocks.{estimator.depth - 1}."
            return shapes | {
                "input_embedding.weight": (flow.vocab_size, NUM_MELS),
                "decoder.estimator.proj_out.weight": (NUM_MELS, estimator.dim),
                f"{last_block}attn.to_q.weight": (attention_width, estimator.dim),
            }
        case StepAudio2FlowConfig():
            return shapes | {
                "input_embedding.weight": (flow.vocab_size, flow.encoder.dim),
                "decoder.estimator.final_layer.linear.weight": (NUM_MELS, estimator.dim),
                f"decoder.estimator.blocks.{estimator.depth - 1}.attn.to_q.weight": (attention_width, estimator.dim),
            }
        case _:
            assert_never(flow)
