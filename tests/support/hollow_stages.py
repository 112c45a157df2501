"""An engine's stages over models that compute nothing (voicegate.bench.standins): as quick as Python is."""

from collections.abc import Sequence
from dataclasses import dataclass

from tests.support.golden import TINY_MODEL_DIR
from tests.support.tiny_tokenizer import tiny_tokenizer
from voicegate.bench.standins import token2wav
from voicegate.bench.standins.llm import HollowRunner
from voicegate.engine.core.stages import Stages, VoiceRoom
from voicegate.engine.core.voice_shelf import ready_voice
from voicegate.engine.flow import chunking
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


def hollow_voice(name: str = "woman", *, num_tokens: int = _NUM_PROMPT_TOKENS) -> Voice:
    return token2wav.hollow_voice(
        name,
        prompt_text=f"Be buffered.<|endofprompt|>{_TRANSCRIPT}",
        transcript=_TRANSCRIPT,
        num_tokens=num_tokens,
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
    *,
    num_slots: int = 8,
    num_blocks: int = 200,
    tokens_per_text_token: int = 4,
    holds_back: bool = True,
    voices: Sequence[Voice] = (),
    first_blocks: chunking.FirstBlocks = chunking.FirstBlocks(),  # noqa: B008 - frozen
) -> Hollow:
    """`num_blocks` beside those of the voices. `holds_back`: the LLM, tokens that nobody needs yet."""
    model = load_model_config(TINY_MODEL_DIR)
    voices = voices or (hollow_voice(),)
    runner = hollow_runner(num_slots=num_slots, tokens_per_text_token=tokens_per_text_token, holds_back=holds_back)
    num_blocks += sum(voice.num_tokens // chunking.TOKENS_PER_BLOCK for voice in voices)
    flow = token2wav.hollow_flow(
        num_blocks=num_blocks, max_streams=num_slots, max_batches=num_slots, first_blocks=first_blocks
    )
    vocoder = token2wav.hollow_vocoder(max_streams=num_slots)
    stages = Stages(
        model,
        tiny_tokenizer(),
        runner,
        flow,
        vocoder,
        {voice.name: ready_voice(voice, model, tiny_tokenizer(), flow) for voice in voices},
        voice_room=VoiceRoom((_NUM_PROMPT_TOKENS, 250)),
    )
    return Hollow(stages, runner, flow, vocoder)
