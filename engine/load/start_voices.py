"""The voices of a start: those that cannot be spoken with are left out, and the others are heard once.

One voice, which somebody may have uploaded, must not keep a server from its start. But the default voice must speak,
for it is what those hear who name none: another one in its place would be a surprise to all of them.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeVar

import structlog

from voicegate.engine.config import EngineConfig
from voicegate.engine.core.core import EngineCore
from voicegate.engine.core.prompting import PromptError
from voicegate.engine.core.stages import Stages
from voicegate.engine.core.voice_shelf import check_voice
from voicegate.engine.interface import (
    Done,
    EngineError,
    EngineEvent,
    Failed,
    UtteranceId,
    UtteranceRequest,
    VoiceRefused,
)
from voicegate.engine.llm.backend import LlmDied
from voicegate.engine.model.config import ModelConfig
from voicegate.engine.text.tokenizer import TextTokenizer
from voicegate.engine.voices.files import default_voice, voice_names
from voicegate.engine.voices.voice import Voice

log = structlog.get_logger()

_WARM_UP_TEXT: Final = "Good morning."
# Speakers, all at once: as many as a CPU has slots. Prompts of further ones were seen to fit, and are rendered. Lower
# -> less of a batch's needs is exercised; higher -> a CPU with many voices starts late.
_MAX_SPEAKERS: Final = 8

_Kept = TypeVar("_Kept")


def default_of(config: EngineConfig, model: ModelConfig, names: Iterable[str]) -> str:
    """Default among voices with these names, at least one; see files.default_voice."""
    found = set(names)
    own = found & voice_names(config.model_dir / "voices")
    return default_voice(model, own, found) or ""


def fitting_voices(
    config: EngineConfig, model: ModelConfig, voices: Mapping[str, Voice], tokenizer: TextTokenizer
) -> Mapping[str, Voice]:
    """Raises EngineError where the default voice does not fit."""
    found = {name: fault_of(voice, model, tokenizer) for name, voice in voices.items()}
    return _without(config, model, voices, {name: fault for name, fault in found.items() if fault is not None})


def fault_of(voice: Voice, model: ModelConfig, tokenizer: TextTokenizer) -> str | None:
    """Why it cannot be spoken with, as far as that is told by counting."""
    try:
        check_voice(voice, model, tokenizer)
    except (VoiceRefused, PromptError) as error:
        return str(error)
    return None


def warm_up(config: EngineConfig, stages: Stages, default: str) -> Mapping[str, str]:
    """Speak through the real path, so that nothing is allocated or compiled later. Returns who did not, and why.

    Raises EngineError where nobody spoke.
    """
    speakers = [default, *(name for name in stages.voices if name != default)][:_MAX_SPEAKERS]
    silent = _speak(config, stages, speakers)
    # One may have broken a step that all shared: each is heard by itself.
    faults = {name: fault for each in silent for name, fault in _speak(config, stages, [each]).items()}
    if len(faults) == len(speakers):
        raise EngineError(f"warm-up: 0 of {len(speakers)} voices spoke; see the log")
    return faults


def without_silent(config: EngineConfig, all_stages: Sequence[Stages], faults: Mapping[str, str]) -> tuple[Stages, ...]:
    """Voices without these. Raises EngineError where the default voice is one."""
    if not faults:
        return tuple(all_stages)
    model = all_stages[0].model
    kept = []
    for number, stages in enumerate(all_stages):
        voices = _without(config, model, stages.voices, faults, is_told=number == 0)
        for name in stages.voices.keys() - voices.keys():
            stages.voices[name].flow_prompt.give_back(stages.flow)
        kept.append(replace(stages, voices=voices))
    return tuple(kept)


def _without(
    config: EngineConfig,
    model: ModelConfig,
    voices: Mapping[str, _Kept],
    faults: Mapping[str, str],
    *,
    is_told: bool = True,
) -> Mapping[str, _Kept]:
    if not faults:
        return voices
    default = default_of(config, model, voices)
    if default in faults:
        raise EngineError(f"the default voice, {default!r}, cannot be spoken with: {faults[default]}")
    for name, fault in faults.items() if is_told else ():
        log.error("voice_left_out", voice=name, reason=fault)
    return {name: voice for name, voice in voices.items() if name not in faults}


def _speak(config: EngineConfig, stages: Stages, names: Sequence[str]) -> dict[str, str]:
    """Voices among these that did not speak, and why. Raises EngineError."""
    events: list[EngineEvent] = []
    core = EngineCore(config, stages, time.monotonic, events.extend)
    ids = {name: UtteranceId(f"warm-up {name}") for name in names}
    for name, utterance_id in ids.items():
        core.submit(UtteranceRequest(utterance_id, name, lead_ms=config.max_lead_ms), seed=0)
        core.push_text(utterance_id, _WARM_UP_TEXT)
        core.end_text(utterance_id)
    try:
        core.run_until_idle()
    except LlmDied as error:
        raise EngineError(f"warm-up: the speech LLM died: {error}") from error
    spoke = {event.utterance_id for event in events if isinstance(event, Done)}
    faults = {event.utterance_id: event.message for event in events if isinstance(event, Failed)}
    return {name: faults.get(each, "it said nothing") for name, each in ids.items() if each not in spoke}
