"""The voices that a running engine speaks with: some may come and go while utterances run. In the engine's thread."""

from collections.abc import Iterable
from typing import Any, Final

from voicegate.engine import units
from voicegate.engine.config import EngineConfig
from voicegate.engine.figures import told_apart
from voicegate.engine.interface import VoiceConflict, VoiceRefused
from voicegate.engine.loop.prompting import PassPrompt, voice_prompt
from voicegate.engine.loop.stages import ReadyVoice, Stages, VoiceRoom
from voicegate.engine.model.config import ModelConfig
from voicegate.engine.text.tokenizer import TextTokenizer
from voicegate.engine.token2wav.flow.backend import FlowBackend, FlowPrompt, PreparedPrompt, PromptRendering
from voicegate.engine.voices.voice import Voice

# Text tokens of the longest clause, its prompt and the special ids around them, on top of a slot's speech tokens.
TEXT_ROOM: Final = 512
# Of these the clause's own: its 240 letters take about 80. Counted without what a slot has for other prompts' speech,
# which differs between starts: a voice that was taken once is taken again. Lower -> long sentences of a voice with a
# very long transcript may fail; higher -> voices are refused that speak all but the longest.
_CLAUSE_ROOM: Final = 96


def voice_room(config: EngineConfig, voices: Iterable[Voice]) -> VoiceRoom:
    """For the voices there are, and for those that may come."""
    spare = [config.spare_voice_tokens] * config.spare_voices
    return VoiceRoom((*(voice.num_tokens for voice in voices), *spare))


def check_voice(voice: Voice, model: ModelConfig, tokenizer: TextTokenizer) -> None:
    """Whether it can be spoken with, as far as that is told by counting. Raises VoiceRefused and PromptError."""
    _prompts_of(voice, model, tokenizer)


def ready_voice(voice: Voice, model: ModelConfig, tokenizer: TextTokenizer, flow: FlowBackend[Any, Any]) -> ReadyVoice:
    """At once, for when nobody speaks yet. Raises VoiceRefused, PromptError and FlowError."""
    prompt, flow_prompt = _prompts_of(voice, model, tokenizer)
    return ReadyVoice(voice, prompt, flow.prepare(flow_prompt))


def begin_voice(
    voice: Voice, model: ModelConfig, tokenizer: TextTokenizer, flow: FlowBackend[Any, Any]
) -> tuple[PassPrompt, PromptRendering[Any]]:
    """Raises VoiceRefused, PromptError and FlowError."""
    prompt, flow_prompt = _prompts_of(voice, model, tokenizer)
    return prompt, flow.begin_prompt(flow_prompt)


def _prompts_of(voice: Voice, model: ModelConfig, tokenizer: TextTokenizer) -> tuple[PassPrompt, FlowPrompt]:
    """What the LLM and the flow are given of it. Raises VoiceRefused and PromptError."""
    prompt = voice_prompt(voice, tokenizer, instruct_prefix=model.instruct_prefix)
    _check_slot(voice, prompt, model)
    return prompt, FlowPrompt(voice.speech_tokens, voice.mel, voice.embedding)


def _check_slot(voice: Voice, prompt: PassPrompt, model: ModelConfig) -> None:
    """That a clause finds room behind it in the LLM's slot. Raises VoiceRefused."""
    num_text, num_speech = len(prompt.llm.text_ids), len(prompt.llm.speech_ids)
    most = min(TEXT_ROOM, model.llm.max_positions - num_speech) - _CLAUSE_ROOM
    if num_text > most:
        raise VoiceRefused(
            f"the transcript of voice {voice.name!r} takes {num_text} of the model's text tokens, and at most "
            f"{max(most, 0)} leave a sentence room behind it: use a shorter recording, with what it says in ordinary "
            "characters"
        )


class VoiceShelf:
    def __init__(self, stages: Stages) -> None:
        self._stages = stages
        self._voices = dict(stages.voices)
        self._prepared: dict[int, PreparedPrompt] = {}  # of voices that nobody has put up yet, by id
        self._retired: list[PreparedPrompt] = []  # of voices taken away that utterances still speak with

    def __getitem__(self, name: str) -> ReadyVoice:
        return self._voices[name]

    def begin(self, voice: Voice) -> tuple[PassPrompt, PromptRendering[Any]]:
        """Its prompt's rendering, which somebody else drives. Raises VoiceRefused, PromptError and FlowError."""
        self._check_room(voice)
        return begin_voice(voice, self._stages.model, self._stages.tokenizer, self._stages.flow)

    def keep(self, ready: ReadyVoice) -> ReadyVoice:
        """It holds its blocks until `put_up` or `discard`."""
        self._prepared[id(ready)] = ready.flow_prompt
        return ready

    def put_up(self, ready: ReadyVoice) -> None:
        """In place of one of the same name."""
        del self._prepared[id(ready)]
        self.remove(ready.voice.name)
        self._voices[ready.voice.name] = ready

    def discard(self, ready: ReadyVoice) -> None:
        self._stages.flow.release(self._prepared.pop(id(ready)))

    def remove(self, name: str) -> None:
        """No utterance may be started with it any more. Unknown names are a no-op."""
        voice = self._voices.pop(name, None)
        if voice is not None:
            self._retired.append(voice.flow_prompt)

    def release_unused(self, in_use: Iterable[ReadyVoice]) -> None:
        """Give back the prompts of removed voices that no utterance speaks with any more."""
        if not self._retired:
            return
        spoken_with = {id(voice.flow_prompt) for voice in in_use}
        kept: list[PreparedPrompt] = []
        for prompt in self._retired:
            if id(prompt) in spoken_with:
                kept.append(prompt)
            else:
                self._stages.flow.release(prompt)
        self._retired = kept

    def _check_room(self, voice: Voice) -> None:
        """The LLM's slots and the flow's memory were made for so much. Raises VoiceRefused, VoiceConflict."""
        room, flow = self._stages.voice_room, self._stages.flow
        if voice.num_tokens > room.longest_tokens:
            told, longest = told_apart(voice.seconds, room.longest_tokens / units.TOKEN_RATE_HZ, decimals=1)
            raise VoiceRefused(
                f"the recording is {told} s long and this running engine has room for {longest} s: use a shorter one, "
                "or add it before the start"
            )
        held = [*(ready.flow_prompt for ready in self._voices.values()), *self._prepared.values(), *self._retired]
        num_held = sum(prompt.num_blocks for prompt in held)
        if num_held + flow.num_prompt_blocks(voice.num_tokens) > sum(map(flow.num_prompt_blocks, room.prompt_tokens)):
            raise VoiceConflict(
                f"{len(self._voices)} voices fill the room that this running engine has for them: remove one, or add "
                "this one before the start"
            )
