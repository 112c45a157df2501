"""An engine's stages over models that compute nothing (voicegate.bench.standins): as quick as Python is."""

from dataclasses import dataclass

from tests.support.golden import TINY_MODEL_DIR
from tests.support.tiny_tokenizer import tiny_tokenizer
from voicegate.bench.standins import token2wav
from voicegate.bench.standins.llm import HollowRunner
from voicegate.engine.core.prompting import voice_prompt
from voicegate.engine.core.stages import ReadyVoice, Stages, VoicePrompt, VoiceRoom
from voicegate.engine.flow import chunking
from voicegate.engine.flow.backend import FlowPrompt
from voicegate.engine.flow.runner import FlowRunner
from voicegate.engine.model.model_json import load_model_config
from voicegate.engine.vocoder.runner import VocoderRunner
from voicegate.engine.voices.voice import Voice

_NUM_PROMPT_TOKENS = 38  # 12 more fill a block, as a CPU has it
_TRANSCRIPT = "Mind the gap to the platform, please."  # as many letters a token as text has here


@dataclass(frozen=True)
class Hollow:
    """The stages, and what they are made of."""

    stages: Stages
    runner: HollowRunner
    flow: FlowRunner
    vocoder: VocoderRunner

    @property
    def held(self) -> tuple[int, int, int, int]:
        """Slots, blocks and streams: as at the start where nobody holds any."""
        num_vocoded = self.vocoder._max_streams - len(self.vocoder._free_slots)
        return self.runner.num_free_slots, self.flow.num_free_blocks, self.flow._num_open, num_vocoded


def hollow_voice(name: str = "rms") -> Voice:
    return token2wav.hollow_voice(
        name,
        prompt_text=f"Be buffered.<|endofprompt|>{_TRANSCRIPT}",
        transcript=_TRANSCRIPT,
        num_tokens=_NUM_PROMPT_TOKENS,
        pace=None,
    )


def hollow_runner(*, num_slots: int = 8, tokens_per_text_token: int = 4, holds_back: bool = True) -> HollowRunner:
    model = load_model_config(TINY_MODEL_DIR)
    return HollowRunner(
        model.llm,
        num_slots=num_slots,
        tokens_per_text_token=tokens_per_text_token,
        silent_tokens=sorted(model.silent_tokens),
        holds_back=holds_back,
    )


def hollow(
    *, num_slots: int = 8, num_blocks: int = 200, tokens_per_text_token: int = 4, holds_back: bool = True
) -> Hollow:
    """`num_blocks` beside those of the voice. `holds_back`: the LLM, tokens that nobody needs yet."""
    model = load_model_config(TINY_MODEL_DIR)
    voice = hollow_voice()
    runner = hollow_runner(num_slots=num_slots, tokens_per_text_token=tokens_per_text_token, holds_back=holds_back)
    num_blocks += _NUM_PROMPT_TOKENS // chunking.TOKENS_PER_BLOCK
    flow = token2wav.hollow_flow(num_blocks=num_blocks, max_streams=num_slots, max_batches=num_slots)
    vocoder = token2wav.hollow_vocoder(max_streams=num_slots)
    prompt = voice_prompt(voice, tiny_tokenizer(), instruct_prefix=model.instruct_prefix)
    ready = ReadyVoice(
        voice, prompt, VoicePrompt.of(flow.prepare(FlowPrompt(voice.speech_tokens, voice.mel, voice.embedding)))
    )
    stages = Stages(
        model,
        tiny_tokenizer(),
        runner,
        flow,
        vocoder,
        {voice.name: ready},
        voice_room=VoiceRoom((_NUM_PROMPT_TOKENS, 250)),
    )
    return Hollow(stages, runner, flow, vocoder)
