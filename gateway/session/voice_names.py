"""What clients of other protocols call voices, and which of ours they get. Pure.

Their names are of another vendor's voices ("alloy", "21m00Tcm4TlvDq8ikWAM"), and often nobody can change them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from voicegate.engine.interface import EngineInfo


@dataclass(frozen=True, slots=True)
class VoiceNames:
    aliases: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))  # theirs -> ours

    def astray(self, info: EngineInfo) -> dict[str, str]:
        """The aliases that stand for none of ours, so that the default voice answers to them."""
        ours = {voice.name for voice in info.voices}
        return {theirs: name for theirs, name in self.aliases.items() if name not in ours}

    def resolve(self, name: str | None, info: EngineInfo) -> str:
        """Ours of that name; else what the alias stands for; else the default voice."""
        ours = {voice.name for voice in info.voices}
        if name is None or name in ours:
            return name or info.default_voice
        alias = self.aliases.get(name)
        return alias if alias in ours else info.default_voice
