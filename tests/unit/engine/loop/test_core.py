"""The loop on hollow models: who is served when, on a clock of ours."""

import pytest

from tests.support.golden import TINY_MODEL_DIR
from tests.support.hollow_stages import hollow
from tests.support.tiny_engine import HandDrivenEngine
from voicegate.engine.config import EngineConfig
from voicegate.engine.interface import AudioReady, Done, UtteranceId

pytestmark = pytest.mark.unit

SENTENCE = "The train to the coast leaves at nine. "


class Listening:
    """An engine whose steps take 10 ms each, and what its listeners have to play."""

    def __init__(self, engine: HandDrivenEngine) -> None:
        self.engine = engine
        self.dry_s: dict[UtteranceId, float] = {}
        self._plays_until_s: dict[UtteranceId, float] = {}
        self._num_heard: dict[UtteranceId, int] = {}
        self.order: list[UtteranceId] = []  # in which they were first heard

    def say(self, name: str, text: str) -> UtteranceId:
        utterance_id = self.engine.submit(name)
        self.engine.core.push_text(utterance_id, text)
        self.engine.core.end_text(utterance_id)
        return utterance_id

    def run(self, until_s: float) -> None:
        while self.engine.now_s < until_s:
            decision = self.engine.core.step()
            self.engine.now_s += 0.01
            if decision.is_idle and decision.wake_at_s is None:
                return
            self._listen()

    def _listen(self) -> None:
        now_s = self.engine.now_s
        for name, heard in self.engine.heard.items():
            new = heard.events[self._num_heard.get(name, 0) :]
            self._num_heard[name] = len(heard.events)
            for event in new:
                if isinstance(event, AudioReady):
                    until_s = self._plays_until_s.get(name)
                    if until_s is None:
                        self.order.append(name)
                        until_s = now_s
                    self.dry_s[name] = max(self.dry_s.get(name, 0.0), now_s - until_s)
                    self._plays_until_s[name] = max(until_s, now_s) + len(event.packets) * 0.02


def test_no_listener_runs_dry_behind_newcomers() -> None:
    config = EngineConfig(TINY_MODEL_DIR, device="cpu", max_active_clauses=2, stall_ms=0).resolved("cpu")
    listening = Listening(HandDrivenEngine(config, hollow(num_slots=2).stages))
    listener = listening.say("listener", SENTENCE * 6)
    listening.run(until_s=0.6)
    assert listening.order == [listener]
    newcomers = [listening.say(f"newcomer {number}", SENTENCE) for number in range(12)]
    listening.run(until_s=60.0)
    assert all(isinstance(heard.end, Done) for heard in listening.engine.heard.values())
    assert listening.dry_s[listener] == 0.0
    assert listening.order == [listener, *newcomers], "and they are heard in the order in which they came"
