"""A stand-in for upstream's code: what bench/peers/upstream_server.py calls of it, without a model."""

import os
from pathlib import Path

GROWING = "given a generator"
STEPS = "Euler steps"
CLONED = "a voice of"
_CODE = f'''
import sys
from collections.abc import Generator
from pathlib import Path
from types import SimpleNamespace
import torch

class Model:
    def __init__(self):
        self.token_hop_len = 100  # as many texts leave it
        solve = lambda n_timesteps=10: print("{STEPS}", n_timesteps, file=sys.stderr)
        self.flow = SimpleNamespace(decoder=SimpleNamespace(forward=solve))
        table = torch.nn.Embedding(1536, 2)
        qwen2 = SimpleNamespace(model=SimpleNamespace(embed_tokens=table))
        self.llm = SimpleNamespace(llm=SimpleNamespace(model=qwen2))

class AutoModel:
    def __init__(self, model_dir):
        made = Path(model_dir) / "spk2info.pt"
        self.voices = torch.load(made, weights_only=True) if made.exists() else {{}}
        self.model = Model()
        tokenizer = SimpleNamespace(convert_tokens_to_ids=lambda text: 1258)
        self.frontend = SimpleNamespace(tokenizer=SimpleNamespace(tokenizer=tokenizer))

    def list_available_spks(self):
        return list(self.voices)

    def add_zero_shot_spk(self, prompt_text, prompt_wav, zero_shot_spk_id):
        print("{CLONED}", prompt_text, Path(prompt_wav).name, file=sys.stderr)
        self.voices[zero_shot_spk_id] = {{"prompt_text": torch.tensor([[7]])}}

    def inference_zero_shot(self, text, prompt_text, prompt_wav, zero_shot_spk_id="", stream=False):
        if isinstance(text, Generator):
            print("{GROWING}", file=sys.stderr)
        assert (self.model.token_hop_len, stream) == (25, True)
        self.model.llm.llm.model.model.embed_tokens(self.voices[zero_shot_spk_id]["prompt_text"].long())
        self.model.flow.decoder.forward()
        for word in text.split() if isinstance(text, str) else text:
            yield {{"tts_speech": torch.full((1, 4800), 0.5)}}
'''


def packages(directory: Path) -> str:
    """A path as --upstream takes it."""
    module = directory / "cosyvoice" / "cli" / "cosyvoice.py"
    module.parent.mkdir(parents=True)
    module.write_text(_CODE)
    for folder in (module.parents[1], module.parent):
        (folder / "__init__.py").touch()
    return os.pathsep.join((str(directory), str(directory.parent)))
