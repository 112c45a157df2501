"""Writes generated weights in the layout that vLLM-Omni loads: those of `bench.full_size engine-dir --natural`.

python -m voicegate.bench.peers.generated SRC        3.4 GB
"""

import argparse
import json
import wave
from pathlib import Path
from typing import Final

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper

from voicegate.bench.full_size import natural
from voicegate.bench.full_size.families import special_tokens_of
from voicegate.bench.full_size.source import (
    VOICE_NAME,
    Sizes,
    generated_numbers,
    model_config,
    tokenizer_files,
    write_source,
)
from voicegate.bench.peers.reference import Reference, save
from voicegate.engine.checkpoint.tokenizer import build_tokenizer
from voicegate.engine.units import SAMPLE_RATE_HZ, SAMPLES_PER_TOKEN

_PROMPT: Final = 2  # of natural.prompts: 5.7 s


def write(directory: Path, sizes: Sizes) -> None:
    model = model_config(sizes)
    for name in write_source(directory, sizes, never_stop=True):
        print(name, flush=True)
    texts = directory / "CosyVoice-BlankEN"
    for name, content in tokenizer_files(sizes, natural.english_merges()).items():
        (texts / name).write_text(content, encoding="utf-8")
    tokenizer = build_tokenizer(texts / "vocab.json", texts / "merges.txt", specials=special_tokens_of(sizes))
    counts = natural.SpeechCounts(model, tokenizer)
    state = torch.load(directory / "llm.pt", weights_only=True)
    natural.teach_lengths(state, model, counts)
    torch.save(state, directory / "llm.pt")
    config = {"model_type": "cosyvoice3", "architectures": ["CosyVoice3Model"]}
    (directory / "config.json").write_text(json.dumps(config))
    write_speaker_model(directory / "campplus.onnx", model.cosyvoice3_flow.speaker_dim)
    prompt = list(natural.prompts(counts))[_PROMPT]
    transcript, voice = model.instruct_prefix + prompt.transcript, f"{VOICE_NAME}-{_PROMPT + 1}"
    with wave.open(str(directory / "reference.wav"), "wb") as file:
        file.setparams((1, 2, SAMPLE_RATE_HZ, 0, "NONE", ""))
        noise = generated_numbers("peers.reference").uniform(-6000, 6000, prompt.num_tokens * SAMPLES_PER_TOKEN)
        file.writeframes(noise.astype("<i2").tobytes())
    save(Reference("reference.wav", transcript, voice), directory)


def write_speaker_model(path: Path, dim: int) -> None:
    """In place of the released one: [1, T, 80] to [1, dim]."""
    weights = generated_numbers("peers.campplus").standard_normal((80, dim)).astype(np.float32)
    mean = helper.make_node("ReduceMean", ["input", "axes"], ["mean"], keepdims=0)
    graph = helper.make_graph(
        [mean, helper.make_node("MatMul", ["mean", "weights"], ["output"])],
        "campplus",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, [1, "T", 80])],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, [1, dim])],
        [numpy_helper.from_array(np.array([1], np.int64), "axes"), numpy_helper.from_array(weights, "weights")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), str(path))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, metavar="SRC")
    write(parser.parse_args().directory, Sizes())
