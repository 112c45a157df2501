"""The voices that a running engine speaks with: some may come and go while utterances run. In the engine's thread.

A voice's prompt fills blocks of the flow's memory. There is room for so many at once (`VoiceRoom`). One that was given
back is rendered again (arrivals.py) before an utterance with that voice begins, and sounds the same.
"""

from collections.abc import Callable, Iterable
from itertools import count
from typing import Any, Final

from voicegate.engine import units
from voicegate.engine.config import EngineConfig
from voicegate.engine.core.prompting import PassPrompt, voice_prompt
from voicegate.engine.core.stages import ReadyVoice, Stages, VoicePrompt, VoiceRoom
from voicegate.engine.figures import told_apart
from voicegate.engine.flow.backend import FlowBackend, FlowPrompt, PreparedPrompt, PromptRendering
from voicegate.engine.interface import VoiceRefused
from voicegate.engine.model.config import ModelConfig
from voicegate.engine.text.tokenizer import TextTokenizer
from voicegate.engine.voices.voice import Voice

# Text tokens of the longest clause, its prompt and the special ids around them, on top of a slot's speech tokens.
TEXT_ROOM: Final = 512
# The clause's own part: its 240 letters take about 80. Counted without a slot's room for other prompts' speech, which
# differs between starts: a voice that was taken once is taken again. Lower -> long sentences of a voice with a very
# long transcript may fail; higher -> voices are refused that speak all but the longest.
_CLAUSE_ROOM: Final = 96


def voice_room(config: EngineConfig, voices: Iterable[Voice]) -> VoiceRoom:
    """For the voices there are, and for those that may come."""
    spare = [config.spare_voice_tokens] * config.spare_voices
    return VoiceRoom((*(voice.num_tokens for voice in voices), *spare))


def check_voice(voice: Voice, model: ModelConfig, tokenizer: TextTokenizer) -> None:
    """Whether it can be spoken with, as far as that is told by counting. Raises VoiceRefused and PromptError."""
    _prompts_of(voice, model, tokenizer)


def ready_voice(voice: Voice, model: ModelConfig, tokenizer: TextTokenizer, flow: FlowBackend[Any, Any]) -> ReadyVoice:
    """At once, before there is speech. Raises VoiceRefused, PromptError and FlowError."""
    prompt, flow_prompt = _prompts_of(voice, model, tokenizer)
    return ReadyVoice(voice, prompt, VoicePrompt.of(flow.prepare(flow_prompt)))


def prompt_blocks(room: VoiceRoom, flow: FlowBackend[Any, Any]) -> int:
    """Blocks of the flow's memory, for all prompts that are held at once."""
    return sum(map(flow.num_prompt_blocks, room.prompt_tokens))


def _prompts_of(voice: Voice, model: ModelConfig, tokenizer: TextTokenizer) -> tuple[PassPrompt, FlowPrompt]:
    """Its prompts for the LLM and the flow. Raises VoiceRefused and PromptError."""
    prompt = voice_prompt(voice, tokenizer, instruct_prefix=model.instruct_prefix)
    _check_slot(voice, prompt, model)
    return prompt, FlowPrompt(voice.speech_tokens, voice.mel, voice.embedding)


def _check_slot(voice: Voice, prompt: PassPrompt, model: ModelConfig) -> None:
    """Checks that a clause finds room after it in the LLM's slot. Raises VoiceRefused."""
    num_text, num_speech = len(prompt.llm.text_ids), len(prompt.llm.speech_ids)
    most = min(TEXT_ROOM, model.llm.max_positions - num_speech) - _CLAUSE_ROOM
    if num_text > most:
        raise VoiceRefused(
            f"the transcript of voice {voice.name!r} takes {num_text} of the model's text tokens, and at most "
            f"{max(most, 0)} leave a sentence room after it: use a shorter recording, with what it says in ordinary "
            "characters"
        )


class VoiceShelf:
    """There may be more voices than the flow has room for: those not spoken with for longest give theirs back."""

    def __init__(self, stages: Stages, in_use: Callable[[], Iterable[ReadyVoice]]) -> None:
        """`in_use`: of utterances that have something to say; these keep their room."""
        self._stages = stages
        self._in_use = in_use
        self._num_blocks = prompt_blocks(stages.voice_room, stages.flow)
        self._voices = dict(stages.voices)
        self._prepared: dict[int, VoicePrompt] = {}  # of voices that are not installed yet, by id
        self._retired: list[VoicePrompt] = []  # of voices taken away that utterances still speak with
        # Spoken with, and to go for one that waits for their room: an utterance that begins later, or comes back from
        # rest, does not begin with them (room.py).
        self._leaving: list[VoicePrompt] = []
        self._uses = count()
        for ready in self._voices.values():
            self.note_use(ready)

    def __getitem__(self, name: str) -> ReadyVoice:
        return self._voices[name]

    def note_use(self, voice: ReadyVoice) -> None:
        """An utterance speaks with it, or has done until now."""
        voice.flow_prompt.last_use = next(self._uses)

    def begin(self, voice: Voice) -> tuple[PassPrompt, PromptRendering[Any]] | None:
        """Its prompt's rendering, which the caller drives. None: others speak with all that fill the room.

        Raises VoiceRefused, PromptError and FlowError.
        """
        self._check_room(voice)
        if not self._make_room(self._stages.flow.num_prompt_blocks(voice.num_tokens)):
            return None
        prompt, flow_prompt = _prompts_of(voice, self._stages.model, self._stages.tokenizer)
        return prompt, self._stages.flow.begin_prompt(flow_prompt)

    @property
    def is_any_leaving(self) -> bool:
        return bool(self._leaving)

    def is_leaving(self, voice: ReadyVoice) -> bool:
        return any(voice.flow_prompt is prompt for prompt in self._leaving)

    def keep(self, ready: ReadyVoice) -> ReadyVoice:
        """It holds its blocks until `install` or `discard`."""
        self._prepared[id(ready)] = ready.flow_prompt
        return ready

    def take_back(self, prompt: VoicePrompt, rendered: PreparedPrompt) -> None:
        """It has been rendered again; in vain, where the voice has gone meanwhile."""
        if any(prompt is each for each in self._prompts()):
            prompt.rendered = rendered
        else:
            self._stages.flow.release(rendered)

    def install(self, ready: ReadyVoice) -> None:
        """In place of one of the same name."""
        del self._prepared[id(ready)]
        self.remove(ready.voice.name)
        self._voices[ready.voice.name] = ready
        self.note_use(ready)

    def discard(self, ready: ReadyVoice) -> None:
        self._prepared.pop(id(ready)).give_back(self._stages.flow)

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
        kept: list[VoicePrompt] = []
        for prompt in self._retired:
            if id(prompt) in spoken_with:
                kept.append(prompt)
            else:
                prompt.give_back(self._stages.flow)
        self._retired = kept

    def _prompts(self) -> list[VoicePrompt]:
        return [*self._known_prompts, *self._prepared.values()]

    @property
    def _known_prompts(self) -> list[VoicePrompt]:
        """Prompts of voices that may be spoken with."""
        return [*(ready.flow_prompt for ready in self._voices.values()), *self._retired]

    def _make_room(self, num_blocks: int) -> bool:
        """Whether another prompt has room among them, if need be that of voices which are not in use.

        Of the blocks themselves speech may have more: then too few are free all the same.
        """
        flow = self._stages.flow
        num_excess = sum(prompt.num_blocks for prompt in self._prompts()) + num_blocks - self._num_blocks
        num_missing = max(num_excess, num_blocks - flow.num_free_blocks)
        if num_missing <= 0:
            self._leaving = []
            return True
        in_use = {id(voice.flow_prompt) for voice in self._in_use()}
        by_use = sorted(self._known_prompts, key=lambda each: each.last_use)
        idle = [prompt for prompt in by_use if id(prompt) not in in_use]
        num_idle = sum(prompt.num_blocks for prompt in idle)
        if num_idle >= num_missing:
            for prompt in _first_with(num_missing, idle):
                prompt.give_back(flow)
        if num_idle >= num_excess:
            self._leaving = []
            return True
        # Those that were chosen before stay so: else each would come again, and none would ever go.
        busy = sorted((each for each in by_use if id(each) in in_use), key=lambda each: each not in self._leaving)
        self._leaving = _first_with(num_excess - num_idle, busy)
        return False

    def _check_room(self, voice: Voice) -> None:
        """The LLM's slots and the flow's memory were made for so much. Raises VoiceRefused."""
        room = self._stages.voice_room
        if voice.num_tokens > room.longest_tokens:
            told, longest = told_apart(voice.seconds, room.longest_tokens / units.TOKEN_RATE_HZ, decimals=1)
            raise VoiceRefused(
                f"the recording is {told} s long and this running engine has room for {longest} s: use a shorter one, "
                "or add it before the start"
            )


def _first_with(num_blocks: int, prompts: Iterable[VoicePrompt]) -> list[VoicePrompt]:
    """The first of them that hold so many together."""
    found: list[VoicePrompt] = []
    for prompt in prompts:
        if num_blocks > 0 and prompt.num_blocks:
            found.append(prompt)
            num_blocks -= prompt.num_blocks
    return found
