"""Have each teacher speak its voice's prompt, and write the voices of a model directory from it.

python -m models.tiny.training.prompts --model new-model --kokoro DIR
"""

import argparse
import wave
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import load_file

from voicegate.engine.model.model_json import load_model_config
from voicegate.engine.voices.features import PromptAudio
from voicegate.engine.voices.voice import Voice, save_voice

from . import flow, speech_tokenizer
from .evaluate import RATE_HZ, teacher
from .speech_tokenizer import PHASES
from .voices import VOICES


def tokens_of(model: Path, mel: torch.Tensor) -> torch.Tensor:
    """Finds like engine/voices/tiny_analyser.py, which wants a voice to be there already."""
    weights = load_file(model / "speech_tokenizer.safetensors")
    token_of = weights.pop("perm").long()
    encoder = speech_tokenizer.Encoder()
    encoder.load_state_dict({name: each.float() for name, each in weights.items() if not name.startswith("sil_")})
    with torch.inference_mode():
        codes = speech_tokenizer.codes_of(encoder, mel[: len(mel) // 2 * 2])
    return token_of[codes.long() * PHASES + torch.arange(len(codes)) % PHASES]


def write_voice(model: Path, name: str, pcm: npt.NDArray[np.int16]) -> None:
    """From what the teacher says of its prompt; under its old name too, so that nobody's request fails."""
    taught = VOICES[name]
    with wave.open(str(model / "voices" / f"{name}_prompt.wav"), "wb") as file:
        file.setparams((1, 2, RATE_HZ, 0, "NONE", ""))
        file.writeframes(pcm.tobytes())
    audio = PromptAudio.from_samples(torch.from_numpy(pcm).float() / 32768, RATE_HZ)
    tokens = tokens_of(model, audio.mel)
    voice = Voice(
        name=name,
        description=taught.description,
        prompt_text=load_model_config(model).instruct_prefix + taught.prompt,
        transcript=taught.prompt,
        speech_tokens=tokens,
        mel=audio.mel[: 2 * len(tokens)],
        embedding=flow.speaker_embeddings()[taught.number],
    )
    save_voice(voice, model / "voices" / f"{name}.safetensors")
    old = replace(voice, name=taught.old_name, description=f"{taught.description}; the old name of {name}")
    save_voice(old, model / "voices" / f"{taught.old_name}.safetensors")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="a model directory that `export` wrote")
    parser.add_argument("--kokoro", type=Path, help="a folder: kokoro.onnx, vocab.json, styles")
    options = parser.parse_args()
    (options.model / "voices").mkdir(exist_ok=True)
    for name, taught in VOICES.items():
        torch.manual_seed(0)  # Kokoro-82M draws its excitation
        write_voice(options.model, name, teacher(name, options.kokoro)(taught.prompt, 0))


if __name__ == "__main__":
    main()
