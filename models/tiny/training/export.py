"""Write a model directory from the trained states, in upstream's names: what `voicegate serve --model` loads.

    python -m models.tiny.training.export --state state --like models/tiny --output new-model

`prompts` makes its voices.
"""

import argparse
import json
import shutil
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import save_file

from voicegate.engine.flow.estimator import inverse_frequencies
from voicegate.engine.flow.weights import ESTIMATOR_PREFIX, INV_FREQ
from voicegate.engine.model.model_json import load_model_config
from voicegate.engine.vocoder.weights import vocoder_shapes

from . import llm, run, speech_tokenizer
from .speech_tokenizer import LEVELS, NUM_CODES, PHASES
from .voices import VOICES

_TABLE_ROWS, FIRST_SPECIAL = 6761, 6561
# Upstream's 0.8 and 25 have a model of this size say more wrong words (RECIPE.md, Sampling).
_SAMPLING: Final = {"top_p": 0.4, "top_k": 6}
_COPIED: Final = ("tokenizer.json", "tokenizer_config.json")
# A buffer of upstream's, which loads its state dict strictly. In float16 a place far on would turn by another angle.
ROTATION: Final = ESTIMATOR_PREFIX + INV_FREQ

Weights = dict[str, torch.Tensor]


def llm_weights(trained: Weights, token_of: torch.Tensor) -> Weights:
    """`token_of` [codes * phases]: the id of each code and phase, code-major."""
    body = {
        f"llm.model.model.{name}": weight
        for name, weight in trained.items()
        if name.startswith(("embed_tokens", "layers", "norm"))
    }
    tables = []
    for which in (0, 1):
        codes, levels, phases, special = (
            trained[f"{kind}_rows.{which}"] for kind in ("code", "level", "phase", "special")
        )
        table = special[-1].expand(_TABLE_ROWS, -1).clone()
        table[token_of] = (llm.code_table(codes, levels)[:, None] + phases).flatten(0, 1)
        table[FIRST_SPECIAL : FIRST_SPECIAL + llm.NUM_SPECIAL] = special[: llm.NUM_SPECIAL]
        tables.append(table)
    return body | {
        "llm.model.lm_head.weight": trained["embed_tokens.weight"].clone(),
        "speech_embedding.weight": tables[0],
        "llm_decoder.weight": tables[1],
    }


def flow_weights(trained: Weights, token_of: torch.Tensor, num_tokens: int, head_dim: int) -> Weights:
    rows = trained["input_embedding.weight"]
    table = torch.zeros(num_tokens, rows.shape[1])
    table[token_of] = rows.repeat_interleave(PHASES, dim=0)
    no_biases = {
        name.replace("to_q.bias", "to_k.bias"): torch.zeros_like(weight)
        for name, weight in trained.items()
        if name.endswith("to_q.bias")
    }
    return no_biases | trained | {"input_embedding.weight": table, ROTATION: inverse_frequencies(head_dim)}


def tokenizer_weights(trained: Weights, ids: torch.Tensor) -> Weights:
    encoder = {name.removeprefix("encoder."): weight for name, weight in trained.items() if name.startswith("encoder.")}
    threshold = torch.tensor(speech_tokenizer.SILENT_BELOW)
    return encoder | {
        "perm": ids,
        "sil_code": torch.tensor(speech_tokenizer.SILENT_CODE),
        "sil_thr": threshold,
    }


def _saved(weights: Weights, path: Path) -> None:
    save_file(
        {
            name: (weight.half() if weight.is_floating_point() and name != ROTATION else weight).contiguous()
            for name, weight in weights.items()
        },
        path,
    )


def export(state: Path, like: Path, output: Path, *, flow: str, steps: int, guidance: float) -> None:
    output.mkdir(parents=True, exist_ok=True)
    for name in _COPIED:
        shutil.copy(like / name, output / name)
    shutil.copy(Path(__file__).with_name("NOTICE"), output / "NOTICE")
    model = load_model_config(like)
    described: dict[str, Any] = json.loads((like / "model.json").read_text())
    ids = speech_tokenizer.token_ids(described["silent_tokens"], FIRST_SPECIAL)
    token_of = ids[: NUM_CODES * PHASES]
    _saved(llm_weights(run.averaged_weights(state, "llm"), token_of), output / "llm.safetensors")
    trained_flow = flow_weights(
        run.averaged_weights(state, flow), token_of, FIRST_SPECIAL, model.cosyvoice3_flow.estimator.head_dim
    )
    _saved(trained_flow, output / "flow.safetensors")
    values = run.averaged_weights(state, "vocoder")
    names = sorted(vocoder_shapes(model.vocoder))
    _saved({name: values[f"values.{index}"] for index, name in enumerate(names)}, output / "vocoder.safetensors")
    _saved(tokenizer_weights(run.averaged_weights(state, "tokenizer"), ids), output / "speech_tokenizer.safetensors")
    described["flow"]["decoder"]["cfm_params"] |= {"inference_steps": steps, "inference_cfg_rate": guidance}
    described["default_voice"] = next(iter(VOICES))
    described["sampling"] |= {**_SAMPLING, "win_size": PHASES - 1}
    described["speech_tokenizer"] |= {
        "levels": list(LEVELS),
        "content_codes": NUM_CODES,
        "phases": PHASES,
        "note": f"token id = perm[code*{PHASES} + (t mod {PHASES})]",
    }
    (output / "model.json").write_text(json.dumps(described, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--like", type=Path, required=True, help="a model directory of the same shapes")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--flow", default="flow", help="the stage that made the flow: flow or distilled_flow")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--guidance", type=float, default=0.7)
    options = parser.parse_args()
    export(
        options.state, options.like, options.output, flow=options.flow, steps=options.steps, guidance=options.guidance
    )


if __name__ == "__main__":
    main()
