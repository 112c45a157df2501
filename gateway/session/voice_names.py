"""Voice names of other protocols, and the voices of ours that they get. Pure.

Their names are of another vendor's voices ("alloy", "21m00Tcm4TlvDq8ikWAM"), and often no one can change them.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from voicegate.engine.interface import EngineInfo

_NO_ALIASES: Final[Mapping[str, str]] = MappingProxyType({})
# As servers that mix voices have it, Kokoro's for one.
_MAX_MIX_CHARS: Final = 512  # what is longer would take long to look at
_BETWEEN: Final = re.compile(r"[+,;|&]")
# No two of its repetitions may take the same blanks: a name of a client's is tried in every way that there is.
_WEIGHT: Final = re.compile(r"(\([^()]*\)|[:*=@][\s\d.%]*)$|^[\d.]+\s*\*")


@dataclass(frozen=True, slots=True)
class VoiceNames:
    aliases: Mapping[str, str] = field(default_factory=lambda: _NO_ALIASES)  # theirs -> ours

    def astray(self, info: EngineInfo) -> dict[str, str]:
        """The aliases that stand for none of ours, so that the default voice answers to them."""
        ours = {voice.name for voice in info.voices}
        return {theirs: name for theirs, name in self.aliases.items() if name not in ours}

    def resolve(self, name: str | None, info: EngineInfo) -> str:
        """Ours of that name; else what the alias stands for; else the default voice.

        A mix of voices as it is, to be refused: one of them alone would be heard for the mix.
        """
        ours = {voice.name for voice in info.voices}
        if name is None or name in ours:
            return name or info.default_voice
        alias = self.aliases.get(name)
        if alias not in ours and is_mix(name, info, self.aliases):
            return name
        return alias if alias in ours else info.default_voice


def is_mix(name: str, info: EngineInfo, aliases: Mapping[str, str] = _NO_ALIASES) -> bool:
    """Whether it names several voices, one of them known here: "ann+ben", "ann(2)+ben(1)" or "ann:0.3,ben:0.7"."""
    if len(name) > _MAX_MIX_CHARS:
        return False
    known = {voice.name for voice in info.voices}.union(aliases)
    parts = [_WEIGHT.sub("", part.strip()).strip() for part in _BETWEEN.split(name)]
    return len(parts) > 1 and not known.isdisjoint(parts)
