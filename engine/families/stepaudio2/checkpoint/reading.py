"""CosyVoice2's LLM with Step-Audio2's token2wav, read and checked: configuration, tokenizer and tensors."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from tokenizers import Tokenizer

from voicegate.engine import units
from voicegate.engine.checkpoint.checkpoint import Checkpoint, State
from voicegate.engine.checkpoint.conversion import CheckpointError, ConvertOptions, Decoding, UnfitTensors
from voicegate.engine.checkpoint.model_json import check_model_json, qwen2_body
from voicegate.engine.checkpoint.shapes import check_named, check_tensors, raise_all
from voicegate.engine.checkpoint.source import load_json, load_safetensors, load_weights, usable_onnx
from voicegate.engine.checkpoint.tokenizer import (
    END_OF_PROMPT,
    added_ids,
    build_tokenizer,
    rebuild_tokenizer,
    special_tokens,
)
from voicegate.engine.checkpoint.trained import Weights, plain_merged
from voicegate.engine.checkpoint.upstream_yaml import read_upstream_yaml
from voicegate.engine.families.stepaudio2.checkpoint import llm as cosyvoice2_llm
from voicegate.engine.families.stepaudio2.checkpoint.llm import SpeechIds
from voicegate.engine.families.stepaudio2.checkpoint.source import StepAudio2Source, find_stepaudio2
from voicegate.engine.model.config import HeadBias, ModelConfig
from voicegate.engine.model.upstream_kinds import COSYVOICE2_STEPAUDIO2, TOKEN2WAV_CONFIG

SPECIAL_TOKENS: Final = special_tokens()[:20]  # CosyVoice3 has these, in this order, and more
SPEECH_TOKENS: Final = 6561
LANGUAGES: Final = ("en", "zh", "yue", "ja", "ko")
_MIX_RATIO: Final = (5, 15)

# Upstream's constructors' own values: no file has them.
HIFT: Final[Mapping[str, Any]] = {
    "in_channels": units.NUM_MELS,
    "base_channels": 512,
    "nb_harmonics": 8,
    "sampling_rate": units.SAMPLE_RATE_HZ,
    "nsf_alpha": 0.1,
    "nsf_sigma": 0.003,
    "nsf_voiced_threshold": 10,
    "upsample_rates": [8, 5, 3],
    "upsample_kernel_sizes": [16, 11, 7],
    "istft_params": {"n_fft": 16, "hop_len": 4},
    "resblock_kernel_sizes": [3, 7, 11],
    "resblock_dilation_sizes": [[1, 3, 5], [1, 3, 5], [1, 3, 5]],
    "source_resblock_kernel_sizes": [7, 7, 11],
    "source_resblock_dilation_sizes": [[1, 3, 5], [1, 3, 5], [1, 3, 5]],
    "lrelu_slope": 0.1,
    "audio_limit": 0.99,
}
F0_PREDICTOR: Final[Mapping[str, Any]] = {"num_class": 1, "in_channels": units.NUM_MELS, "cond_channels": 512}
_MEL: Final[Mapping[str, Any]] = {
    "n_fft": 1920,
    "num_mels": units.NUM_MELS,
    "sampling_rate": units.SAMPLE_RATE_HZ,
    "hop_size": units.SAMPLES_PER_FRAME,
    "win_size": 1920,
    "fmin": 0,
    "fmax": 8000,
    "center": False,
}
_DECODING: Final[Mapping[Decoding, Mapping[str, Any]]] = {
    Decoding.ORIGINAL: {
        "head_bias": HeadBias.USED,
        "stop": {"eos_alone": False, "min_token_text_ratio": 2, "max_token_text_ratio": 20},
        "sampling": {"kind": "repetition-aware", "top_p": 0.8, "top_k": 25, "win_size": 10, "tau_r": 0.1},
    },
    Decoding.DEPLOYED: {
        "head_bias": HeadBias.IGNORED,
        "stop": {"eos_alone": True, "min_token_text_ratio": 0, "max_token_text_ratio": None, "max_tokens": 750},
        "sampling": {
            "kind": "repetition-penalty",
            "temperature": 0.8,
            "top_p": 0.95,
            "top_k": 50,
            "repetition_penalty": 1.1,
        },
    },
}


def read_checkpoint(directory: Path, options: ConvertOptions) -> Checkpoint:
    """Answers `voicegate convert`. Raises as `read_stepaudio2`."""
    return read_stepaudio2(find_stepaudio2(directory, llm_file=options.llm_file), options)


def read_stepaudio2(source: StepAudio2Source, options: ConvertOptions) -> Checkpoint:
    """Raises CheckpointError; UnfitTensors with the faults of all weights files, by the names that they have there."""
    qwen2 = load_json(source.llm / "config.json")
    if source.is_merged:
        ids, tokenizer = _merged_tokenizer(source)
        llm_found = _load_merged(source)
        has_bias = "lm_head.bias" in llm_found.state
    else:
        tokenizer = build_tokenizer(
            source.llm / "vocab.json",
            source.llm / "merges.txt",
            source.llm / "tokenizer_config.json",
            specials=SPECIAL_TOKENS,
        )
        ids = SpeechIds(tokenizer.get_vocab_size(), SPEECH_TOKENS)
        llm_found = load_weights(source.llm_files[0], "llm")
        has_bias = True
    found = {part: load_weights(source.weights(part)[0], part) for part in ("flow", "vocoder")}
    (end_of_prompt_id,) = tokenizer.encode(END_OF_PROMPT).ids
    raw = stepaudio2_model_json(
        read_upstream_yaml(source.token2wav / TOKEN2WAV_CONFIG),
        found["vocoder"].state,
        qwen2_body(qwen2, source.llm / "config.json", is_tied=not source.is_merged),
        ids,
        name=options.name or source.directory.name,
        end_of_prompt_id=end_of_prompt_id,
        has_bias=has_bias,
        decoding=options.decoding,
    )
    model = check_model_json(raw, name=source.directory.name)
    others = {part: each.state for part, each in found.items()}
    _check(source, model, llm_found.state, others, num_rows=qwen2["vocab_size"])
    if source.is_merged:
        llm = cosyvoice2_llm.merged_state(llm_found.state, model.llm, ids)
    else:
        llm = cosyvoice2_llm.pt_state(llm_found.state, model.llm)
    onnx, remarks = usable_onnx(source.onnx)
    return Checkpoint(
        raw,
        model,
        tokenizer,
        {"llm": llm, **others},
        origins={part: source.weights(part) for part in ("llm", "flow", "vocoder")},
        onnx=onnx,
        speakers=None,
        has_upstream_noise=False,
        remarks=[*(remark for each in (llm_found, *found.values()) for remark in each.remarks), *remarks],
    )


def stepaudio2_model_json(
    flow_yaml: Mapping[str, Any],
    vocoder: Mapping[str, Any],
    qwen2: Mapping[str, Any],
    ids: SpeechIds,
    *,
    name: str,
    end_of_prompt_id: int,
    has_bias: bool,
    decoding: Decoding,
) -> dict[str, Any]:
    """From flow.yaml (see upstream_yaml), the tensors of hift.pt and the LLM's sizes. Raises CheckpointError."""
    chosen = _DECODING[decoding]
    size = ids.num_tokens
    return {
        "name": name,
        "model_type": COSYVOICE2_STEPAUDIO2,
        "default_mode": "incremental",
        "languages": list(LANGUAGES),
        "supports_instruct": True,
        "sample_rate": units.SAMPLE_RATE_HZ,
        "token_frame_rate": units.TOKEN_RATE_HZ,
        "endofprompt_token_id": end_of_prompt_id,
        "instruct_prefix": "",
        "eos_token_id": size,
        "fill_token_id": size + 2,
        "sos_token_id": size + cosyvoice2_llm.NUM_SPECIAL_ROWS,
        "task_token_id": size + cosyvoice2_llm.NUM_SPECIAL_ROWS + 1,
        "silent_tokens": [],
        "sampling": dict(chosen["sampling"]),
        "llm": {
            "speech_token_size": size,
            "mix_ratio": list(_MIX_RATIO),
            "needs_endofprompt": False,
            "num_special_rows": cosyvoice2_llm.NUM_SPECIAL_ROWS,
            "num_unspoken_rows": cosyvoice2_llm.NUM_UNSPOKEN_ROWS,
            "head_bias": chosen["head_bias"] if has_bias else HeadBias.ABSENT,
            "stop": dict(chosen["stop"]),
            "qwen2": {**qwen2, "vocab_size": ids.first},
        },
        "token2wav": _token2wav(flow_yaml, vocoder),
        "mel": dict(_MEL),
    }


def _token2wav(flow_yaml: Mapping[str, Any], vocoder: Mapping[str, Any]) -> dict[str, Any]:
    """One part for each of upstream's modules, from the object graph that flow.yaml is, and the vocoder's tensors."""
    try:
        flow = flow_yaml["flow"]
        encoder, decoder = flow["encoder"], flow["decoder"]
        parts = {"flow": flow, "encoder": encoder, "decoder": decoder, "estimator": decoder["estimator"]}
        section: dict[str, Any] = {
            part: {key: value for key, value in arguments.items() if not isinstance(value, dict) and key != "!new"}
            for part, arguments in parts.items()
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{TOKEN2WAV_CONFIG} lacks or garbles {error}") from error
    channels = _num_rows(vocoder, "conv_pre.bias", HIFT["base_channels"])
    f0_channels = _num_rows(vocoder, "f0_predictor.condnet.0.bias", F0_PREDICTOR["cond_channels"])
    section["hift"] = {**HIFT, "base_channels": channels}
    section["f0_predictor"] = {**F0_PREDICTOR, "cond_channels": f0_channels}
    return section


def _num_rows(state: Mapping[str, Any], name: str, released: int) -> int:
    """A size that no configuration has; where the tensor is not there, its check will say so."""
    tensor = state.get(name)
    return len(tensor) if isinstance(tensor, torch.Tensor) and tensor.dim() else released


def _merged_tokenizer(source: StepAudio2Source) -> tuple[SpeechIds, Tokenizer]:
    """Without the speech tokens: no text leads to them."""
    path = source.llm / "tokenizer.json"
    ids = SpeechIds.of(added_ids(path), path)
    tokenizer = rebuild_tokenizer(path, specials=SPECIAL_TOKENS)
    if tokenizer.get_vocab_size() != ids.first:
        raise CheckpointError(
            f"{path}: text and special tokens are {tokenizer.get_vocab_size()}, but <|s_0|> is {ids.first}: it has "
            "other tokens between them than CosyVoice2's"
        )
    return ids, tokenizer


def _load_merged(source: StepAudio2Source) -> Weights:
    """All shards' tensors, mapped."""
    state: dict[str, torch.Tensor] = {}
    for path in source.llm_files:
        state |= load_safetensors(path)
    return Weights(plain_merged(state, source.llm_files[0]))


def _check(
    source: StepAudio2Source, model: ModelConfig, llm: State, others: Mapping[str, State], *, num_rows: int
) -> None:
    """Checks that the parts go together; then all files before any is refused."""
    if model.llm.speech_token_size != model.flow.vocab_size:
        raise CheckpointError(
            f"{source.llm} has {model.llm.speech_token_size} speech tokens, {TOKEN2WAV_CONFIG} "
            f"{model.flow.vocab_size}: they are of different models"
        )
    num_needed = model.llm.vocab_size + (model.llm.num_table_rows if source.is_merged else 0)
    if num_rows < num_needed:
        raise CheckpointError(
            f"{source.llm / 'config.json'} has a vocab_size of {num_rows}; its tokenizer needs {num_needed}"
        )
    unfit: list[UnfitTensors] = []
    of_llm = cosyvoice2_llm.merged_shapes if source.is_merged else cosyvoice2_llm.pt_shapes
    try:
        check_named(source.llm_files[0].name, llm, *of_llm(model.llm, num_rows))
    except UnfitTensors as error:
        unfit.append(error)
    for part, found in others.items():
        try:
            check_tensors(source.weights(part)[0].name, part, model, found)
        except UnfitTensors as error:
            unfit.append(error)
    raise_all(unfit)
