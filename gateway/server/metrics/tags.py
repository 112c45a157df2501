"""Counts by the tag that clients name themselves with, for tags that the operator has listed (ADR 0023)."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry, Counter

from voicegate.gateway.session.context import Context
from voicegate.gateway.session.witness import Nobody, Witness

# Clients without a listed tag.
OTHER: Final = "other"


@dataclass(frozen=True, slots=True)
class _Tagged(Nobody):
    contexts: Counter
    characters: Counter
    audio: Counter

    def ended(self, context: Context, outcome: str) -> None:
        self.contexts.inc()
        self.characters.inc(context.num_characters)
        self.audio.inc(context.listener.sent_ms / 1000)


class Tags:
    def __init__(self, registry: CollectorRegistry, tags: Iterable[str]) -> None:
        def counter(name: str, text: str) -> Counter:
            return Counter(f"voicegate_client_{name}", f"{text}, by client's tag", ("tag",), registry=registry)

        contexts = counter("contexts_ended", "Contexts that have ended")
        characters = counter("text_characters", "Characters of their text")
        audio = counter("audio_seconds", "Audio handed to sockets for them")
        self._by_tag = {
            tag: _Tagged(contexts.labels(tag), characters.labels(tag), audio.labels(tag)) for tag in (*tags, OTHER)
        }

    def witness(self, tag: str | None) -> Witness:
        return self._by_tag.get(tag or OTHER, self._by_tag[OTHER])
