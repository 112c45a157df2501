"""An upstream CosyVoice3 directory, read and checked."""

from typing import Any

from tokenizers import Tokenizer

from voicegate.engine.checkpoint.checkpoint import Checkpoint
from voicegate.engine.checkpoint.conversion import CheckpointError, ConvertOptions, Decoding
from voicegate.engine.checkpoint.model_json import check_model_json, model_json
from voicegate.engine.checkpoint.shapes import check_parts
from voicegate.engine.checkpoint.source import OWN_CONFIG, Source, load_json, load_weights, usable_onnx
from voicegate.engine.checkpoint.tokenizer import END_OF_PROMPT, build_tokenizer
from voicegate.engine.checkpoint.upstream_yaml import read_upstream_yaml
from voicegate.engine.load.family import PARTS


def read_cosyvoice3(source: Source, options: ConvertOptions) -> Checkpoint:
    """Raises CheckpointError; UnfitTensors with the faults of all three weights files."""
    source.check()
    if options.decoding is not Decoding.ORIGINAL:
        raise CheckpointError(f"--decoding {options.decoding} is of CosyVoice2's LLM; {source.directory} is CosyVoice3")
    tokenizer = build_tokenizer(
        source.tokenizer("vocab.json"), source.tokenizer("merges.txt"), source.tokenizer("tokenizer_config.json")
    )
    raw = _read_config(source, options, tokenizer)
    model = check_model_json(raw, name=source.directory.name)
    if tokenizer.get_vocab_size() > model.llm.vocab_size:
        raise CheckpointError(
            f"the tokenizer has {tokenizer.get_vocab_size()} entries, the LLM's text table {model.llm.vocab_size} rows"
        )
    weights = {part: load_weights(source.weights(part), part) for part in PARTS}
    states = {part: each.state for part, each in weights.items()}
    check_parts(model, {part: (source.weights(part).name, states[part]) for part in PARTS})
    onnx, remarks = usable_onnx(source.onnx)
    return Checkpoint(
        raw,
        model,
        tokenizer,
        states,
        origins={part: [source.weights(part)] for part in PARTS},
        onnx=onnx,
        speakers=source.speakers,
        has_upstream_noise=True,
        remarks=[*(remark for each in weights.values() for remark in each.remarks), *remarks],
    )


def _read_config(source: Source, options: ConvertOptions, tokenizer: Tokenizer) -> dict[str, Any]:
    (end_of_prompt_id,) = tokenizer.encode(END_OF_PROMPT).ids
    if source.config.name == OWN_CONFIG:
        raw = dict(load_json(source.config))
        if raw.get("endofprompt_token_id") != end_of_prompt_id:
            raise CheckpointError(
                f"{source.config} has {END_OF_PROMPT} as {raw.get('endofprompt_token_id')}, the tokenizer as "
                f"{end_of_prompt_id}"
            )
        return raw | ({"name": options.name} if options.name else {})
    return model_json(
        read_upstream_yaml(source.config),
        load_json(source.tokenizer("config.json")),
        name=options.name or source.directory.name,
        end_of_prompt_id=end_of_prompt_id,
    )
