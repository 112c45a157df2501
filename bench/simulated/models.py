"""Stages of an engine that compute nothing, on a device that takes the measured times.

Speech ends with its text: so many speech tokens a text token as are given, in every seed.
"""

from dataclasses import dataclass
from typing import Final

from voicegate.bench.simulated.device import Device
from voicegate.bench.standins.llm import HollowRunner
from voicegate.bench.standins.token2wav import hollow_flow, hollow_vocoder, hollow_voice
from voicegate.engine.config import EngineConfig
from voicegate.engine.core import constants
from voicegate.engine.core.stages import Stages
from voicegate.engine.core.voice_shelf import ready_voice, voice_room
from voicegate.engine.load.cosyvoice3 import first_blocks
from voicegate.engine.model.model_json import load_model_config
from voicegate.engine.text.tokenizer import TextTokenizer
from voicegate.engine.voices.pace import VoicePace
from voicegate.engine.voices.voice import Voice

# Blocks of a float8 context that an H200 has room for (docs/adr/0008).
_NUM_BLOCKS: Final = 2760
_MAX_BATCHES: Final = 2
# From a generated checkpoint (full_size/natural.py): speech tokens of its prompts, and those tokens a letter.
VOICES: Final = ((73, 1.46), (114, 2.19), (140, 1.63), (179, 1.57), (218, 1.70), (253, 1.99))


@dataclass(frozen=True, slots=True)
class Simulated:
    stages: Stages
    llm: HollowRunner


def simulated(config: EngineConfig, device: Device, *, tokens_per_text_token: float) -> Simulated:
    """`config`: resolved for a GPU; its model directory gives the tokenizer, and names."""
    model = load_model_config(config.model_dir)
    tokenizer = TextTokenizer.from_file(
        config.model_dir / "tokenizer.json", end_of_prompt_id=model.llm.end_of_prompt_id
    )
    num_slots = config.max_active_clauses
    flow = hollow_flow(
        num_blocks=_NUM_BLOCKS,
        max_streams=num_slots,
        max_batches=_MAX_BATCHES,
        costs=device,
        first_blocks=first_blocks(config),
    )
    llm = HollowRunner(model.llm, num_slots=num_slots, tokens_per_text_token=tokens_per_text_token, costs=device)
    voices = [_voice(*each) for each in VOICES]
    ready = {voice.name: ready_voice(voice, model, tokenizer, flow) for voice in voices}
    device.token2wav.works.clear()  # prompts are prepared before anybody comes
    stages = Stages(
        model,
        tokenizer,
        llm,
        flow,
        hollow_vocoder(max_streams=num_slots, costs=device),
        ready,
        voice_room=voice_room(config, voices),
        token2wav_lane=device.token2wav,
        is_concurrent=True,
        shares_device=not device.is_llm_apart,
    )
    return Simulated(stages, llm)


def _voice(num_tokens: int, tokens_per_letter: float) -> Voice:
    transcript = ("mind the gap " * 100)[: round(1.2 * num_tokens / tokens_per_letter)]
    return hollow_voice(
        f"prompt-{num_tokens}",
        prompt_text=f"You are a helpful assistant.<|endofprompt|>{transcript}",
        transcript=transcript,
        num_tokens=num_tokens,
        pace=VoicePace(tokens_per_letter, constants.UNTUNED_SHARE),
    )
