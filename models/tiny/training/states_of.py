"""Write states from a model directory, the inverse of `export`: so the shipped model is trained on.

    python -m models.tiny.training.states_of --model models/tiny --state state

They lack what no model directory holds: Adam's moments, the vocoder's discriminators and the tokenizer's own decoder.
So the tokenizer is final, and `by_part` cannot measure the part `codes`.
A flow whose guidance is 0 was distilled: `flow` can train it on, but it is no teacher for `distil` (README).
"""

import argparse
import json
from collections.abc import Callable, Collection, Iterable
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import load_file

from voicegate.engine.model.model_json import load_model_config
from voicegate.engine.vocoder.weights import vocoder_shapes

from . import llm, run, speech_tokenizer
from .export import FIRST_SPECIAL, ROTATION, Weights
from .speech_tokenizer import LEVELS, NUM_CODES, PHASES

STAGES: Final = {"llm": "llm", "flow": "flow", "vocoder": "vocoder", "tokenizer": "speech_tokenizer"}  # and its file
_LLM_BODY: Final = "llm.model.model."
_TABLES: Final = ("speech_embedding.weight", "llm_decoder.weight")  # rows that are fed, rows that score


def llm_state(weights: Weights, token_of: torch.Tensor) -> Weights:
    """The factored form: phases and levels get the means that least squares give, a code's own row the rest."""
    state = {name.removeprefix(_LLM_BODY): weight for name, weight in weights.items() if name.startswith(_LLM_BODY)}
    num_levels = sum(LEVELS)
    has_level = llm.code_table(torch.zeros(NUM_CODES, num_levels), torch.eye(num_levels))
    for which, name in enumerate(_TABLES):
        table = weights[name]
        rows = table[token_of].view(NUM_CODES, PHASES, -1)
        phases = rows.mean(0) - rows.mean((0, 1))
        of_code = (rows - phases).mean(1)
        of_level = torch.linalg.pinv(has_level) @ of_code
        special = table[FIRST_SPECIAL : FIRST_SPECIAL + llm.NUM_SPECIAL]
        state |= {
            f"code_rows.{which}": of_code - has_level @ of_level,
            f"level_rows.{which}": of_level,
            f"phase_rows.{which}": phases,
            f"special_rows.{which}": torch.cat((special, table[-1:])),  # the last row is unused
        }
    return state


def flow_state(weights: Weights, token_of: torch.Tensor) -> Weights:
    state = {name: each for name, each in weights.items() if name != ROTATION and not name.endswith("to_k.bias")}
    rows = weights["input_embedding.weight"][token_of]
    return state | {"input_embedding.weight": rows.view(NUM_CODES, PHASES, -1)[:, 0]}


def vocoder_state(weights: Weights, names: Iterable[str]) -> Weights:
    return {f"values.{index}": weights[name] for index, name in enumerate(sorted(names))}


def tokenizer_state(weights: Weights) -> Weights:
    return {f"encoder.{name}": weights[name] for name in speech_tokenizer.Encoder().state_dict()}


def write(model: Path, state: Path, stages: Collection[str] = STAGES) -> None:
    described: dict[str, Any] = json.loads((model / "model.json").read_text())
    token_of = speech_tokenizer.token_ids(described["silent_tokens"], FIRST_SPECIAL)[: NUM_CODES * PHASES]
    state_of: dict[str, Callable[[Weights], Weights]] = {
        "llm": partial(llm_state, token_of=token_of),
        "flow": partial(flow_state, token_of=token_of),
        "vocoder": partial(vocoder_state, names=vocoder_shapes(load_model_config(model).vocoder)),
        "tokenizer": tokenizer_state,
    }
    for stage in stages:
        loaded = load_file(model / f"{STAGES[stage]}.safetensors")
        weights = state_of[stage]({name: each.float() for name, each in loaded.items()})
        run.save_weights(state, stage, weights)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--only", nargs="+", choices=STAGES, default=list(STAGES), help="stages; all without")
    options = parser.parse_args()
    write(options.model, options.state, options.only)


if __name__ == "__main__":
    main()
