"""The pipeline where work is done later than it is launched: lanes that a test moves on, one mark at a time.

The models compute at once, on the CPU; what a GPU would not have reached yet is hidden until its lane gets there.
"""

import random
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from tests.support.lanes import on_lane
from tests.support.tiny_engine import CONFIG, PCM, HandDrivenEngine, Heard, tiny_runner, tiny_stages
from tests.support.word_times import words_in_time
from voicegate.engine.core import constants
from voicegate.engine.core.core import EngineCore
from voicegate.engine.core.stages import Stages
from voicegate.engine.device.lanes import Mark
from voicegate.engine.interface import (
    Cancelled,
    Done,
    EngineEvent,
    Failed,
    UtteranceId,
    UtteranceRequest,
)
from voicegate.engine.vocoder.backend import VocoderBackend, VocoderJob, VocoderStream

TEXT = "Good morning, and welcome back. The train to the coast leaves at nine."


class SimulatedMark:
    def __init__(self, lane: "SimulatedLane", number: int) -> None:
        self.lane = lane
        self.number = number  # in the lane's order
        self.is_reached = False
        self.copies: list[tuple[torch.Tensor, torch.Tensor]] = []  # valid from here on: host's, device's

    def seconds_since(self, earlier: Mark) -> float:
        assert isinstance(earlier, SimulatedMark)
        assert self.is_reached
        assert earlier.lane is self.lane
        return 1.0

    def wait(self) -> None:
        while not self.is_reached:
            self.lane.move_on()


class SimulatedLane:
    active_lanes: list["SimulatedLane"] = []  # noqa: RUF012 - of all lanes, the innermost last

    def __init__(self) -> None:
        self._num_marks = 0
        self.pending: list[SimulatedMark] = []
        self._copies: list[tuple[torch.Tensor, torch.Tensor]] = []

    @property
    def is_active(self) -> bool:
        return self.active_lanes[-1:] == [self]

    @contextmanager
    def active(self) -> Iterator[None]:
        self.active_lanes.append(self)
        try:
            yield
        finally:
            self.active_lanes.pop()

    def mark(self) -> SimulatedMark:
        mark = SimulatedMark(self, self._num_marks)
        self._num_marks += 1
        mark.copies, self._copies = self._copies, []
        self.pending.append(mark)
        return mark

    def to_host(self, tensor: torch.Tensor) -> torch.Tensor:
        assert self.is_active
        self._copies.append((torch.full_like(tensor, torch.nan), tensor))
        return self._copies[-1][0]

    def move_on(self) -> None:
        """To the next mark."""
        if self.pending:
            mark = self.pending.pop(0)
            for host, device in mark.copies:
                host.copy_(device)
            mark.is_reached = True


class WatchedVocoder:
    """The tiny model's vocoder; notes who calls it, and lets a test see whether its mels still live."""

    def __init__(self, vocoder: VocoderBackend, lane: SimulatedLane) -> None:
        self._vocoder = vocoder
        self._lane = lane
        self.mels: list[weakref.ref[torch.Tensor]] = []
        self.fails = False
        self.graphs = SimpleNamespace(num_launches=0)
        self.held_back_frames = vocoder.held_back_frames

    def open(self) -> VocoderStream:
        return self._vocoder.open()

    def close(self, stream: VocoderStream) -> None:
        self._vocoder.close(stream)

    def run(self, jobs: Sequence[VocoderJob]) -> list[torch.Tensor]:
        assert self._lane.is_active
        if self.fails:
            raise RuntimeError("made to fail")
        self.graphs.num_launches += 1
        self.mels += [weakref.ref(job.mel) for job in jobs]
        return self._vocoder.run(jobs)


class Watches:
    """A waker that remembers the marks of work that is not done yet."""

    def __init__(self) -> None:
        self.marks: list[Mark] = []

    def wake(self) -> None:
        raise AssertionError("everything here is announced by a mark")

    def watch(self, mark: Mark) -> None:
        if not mark.is_reached:
            self.marks.append(mark)


class Lanes:
    def __init__(self) -> None:
        self.llm, self.token2wav = SimulatedLane(), SimulatedLane()
        tiny = tiny_stages()
        self.watched = WatchedVocoder(tiny.vocoder, self.token2wav)
        self.stages: Stages = replace(
            tiny,
            vocoder=self.watched,  # type: ignore[arg-type]
            llm=on_lane(tiny_runner(), self.llm),
            token2wav_lane=self.token2wav,
            is_concurrent=True,
        )
        self.engine = HandDrivenEngine(CONFIG, self.stages)

    def count(self, name: str) -> float:
        """A count of the core's counters."""
        return self.engine.core.counters.get(name, 0)

    def speak(self, name: str, text: str = TEXT) -> UtteranceId:
        utterance_id = self.engine.submit(name)
        self.engine.core.push_text(utterance_id, text)
        self.engine.core.end_text(utterance_id)
        return utterance_id

    def step_until(self, is_so: Callable[[], bool], *moving: SimulatedLane) -> None:
        """Step, these lanes moving on meanwhile."""
        for _ in range(10_000):
            if is_so():
                return
            self.engine.core.step()
            for lane in moving:
                lane.move_on()
        raise AssertionError("it does not come to that")

    def heard(self, utterance_id: UtteranceId) -> Heard:
        return self.engine.heard[utterance_id]


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.soak), pytest.param(2, marks=pytest.mark.soak)])
def test_speech_is_the_same_in_whatever_order_lanes_move_on(seed: int) -> None:
    expected = HandDrivenEngine().speak("u", [TEXT])
    lanes, rng = Lanes(), random.Random(seed)
    subject, other = lanes.speak("u"), lanes.speak("other", "It rains.")
    speeds = {lane: rng.choice([0.2, 1.0]) for lane in (lanes.llm, lanes.token2wav)}
    for step in range(100_000):
        if step == 120:
            lanes.engine.core.cancel(other, None)
        lanes.engine.core.step()
        for lane, speed in speeds.items():
            if rng.random() < speed:
                lane.move_on()
        if lanes.heard(subject).end is not None:
            break
    lanes.engine.run()
    assert isinstance(lanes.heard(subject).end, Done)
    spoken, wanted = (np.frombuffer(heard.pcm, "<i2").astype(int) for heard in (lanes.heard(subject), expected))
    assert len(spoken) == len(wanted)
    assert abs(spoken - wanted).max() <= 8  # batches of other sizes round otherwise
    assert [word.text for word in words_in_time(lanes.heard(subject).events)] == TEXT.split()


def test_samples_come_behind_their_block_and_its_mel_is_let_go_at_once() -> None:
    lanes = Lanes()
    subject = lanes.speak("u")
    lanes.step_until(lambda: lanes.count("vocoder_calls") == 1, lanes.llm, lanes.token2wav)
    assert [mel() for mel in lanes.watched.mels] == [None]
    for _ in range(50):
        lanes.engine.core.step()
        lanes.llm.move_on()
    assert not lanes.heard(subject).pcm
    lanes.engine.run()
    assert isinstance(lanes.heard(subject).end, Done)
    assert lanes.count("vocoder_seconds") == lanes.count("vocoder_calls") > 1
    assert lanes.count("vocoder_launches") == lanes.count("vocoder_calls")
    assert 3 * lanes.count("flow_seconds") == lanes.count("flow_steps")  # the tiny model's blocks take three, in one go


def test_the_llm_makes_no_step_while_a_first_block_is_launched_to_its_end() -> None:
    """Beside it that would come later, and nobody lacks tokens yet."""
    lanes = Lanes()
    subject = lanes.speak("u")
    lanes.step_until(lambda: lanes.count("vocoder_calls") == 1, lanes.llm, lanes.token2wav)
    num_steps = lanes.count("llm_steps")
    for _ in range(50):
        lanes.engine.core.step()
        lanes.llm.move_on()
    assert lanes.count("llm_steps") == num_steps
    lanes.step_until(lambda: bool(lanes.heard(subject).pcm), lanes.llm, lanes.token2wav)
    lanes.step_until(lambda: lanes.count("llm_steps") > num_steps, lanes.llm, lanes.token2wav)
    lanes.engine.run()
    assert isinstance(lanes.heard(subject).end, Done)


def test_a_cancel_behind_a_launched_call_is_heard_by_nobody() -> None:
    lanes = Lanes()
    free = (lanes.stages.llm.num_free_slots, lanes.stages.flow.num_free_blocks)
    subject = lanes.speak("u")
    lanes.step_until(lambda: lanes.count("vocoder_calls") == 1, lanes.llm, lanes.token2wav)
    lanes.engine.core.cancel(subject, None)
    lanes.engine.run()
    assert isinstance(lanes.heard(subject).end, Cancelled)
    assert not lanes.heard(subject).pcm
    assert (lanes.stages.llm.num_free_slots, lanes.stages.flow.num_free_blocks) == free


def test_a_call_that_fails_ends_its_clauses_only() -> None:
    lanes = Lanes()
    failing = lanes.speak("u")
    lanes.step_until(lambda: lanes.count("vocoder_calls") == 1, lanes.llm, lanes.token2wav)
    lanes.watched.fails = True
    lanes.step_until(lambda: lanes.heard(failing).end is not None, lanes.llm, lanes.token2wav)
    assert isinstance(lanes.heard(failing).end, Failed)
    lanes.watched.fails = False
    following = lanes.speak("following")
    lanes.engine.run()
    assert isinstance(lanes.heard(following).end, Done)


def test_marks_of_every_lane_are_watched_in_their_order() -> None:
    lanes = Lanes()
    events: list[EngineEvent] = []
    watches = Watches()
    core = EngineCore(CONFIG, lanes.stages, lambda: 0.0, events.extend, waker=watches)
    core.submit(UtteranceRequest(UtteranceId("u"), "woman", PCM), seed=1)
    core.push_text(UtteranceId("u"), "It rains.")
    core.end_text(UtteranceId("u"))
    reached: list[Mark] = []
    while not core.step().is_idle or core.is_busy:
        for lane in (lanes.llm, lanes.token2wav):
            marks = [mark for mark in watches.marks if mark.lane is lane and mark not in reached]
            for mark in marks:
                mark.wait()
                reached.append(mark)
    assert isinstance(events[-1], Done)
    for lane in (lanes.llm, lanes.token2wav):
        numbers = [mark.number for mark in watches.marks if isinstance(mark, SimulatedMark) and mark.lane is lane]
        assert len(numbers) > 1
        assert numbers == sorted(numbers)


# --- launches of several Euler steps --------------------------------------------------------------------------


def test_a_first_block_is_one_launch_and_later_ones_go_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Side by side with the LLM; where both share a processor every step is a decision of its own."""
    monkeypatch.setattr(constants, "STEPS_FOR_LISTENERS", 2)  # of the tiny model's three
    launches: dict[bool, list[int]] = {}
    for is_concurrent in (True, False):
        engine = HandDrivenEngine(CONFIG, replace(tiny_stages(), is_concurrent=is_concurrent))
        utterance_id = engine.submit("u")
        engine.core.push_text(utterance_id, TEXT)
        engine.core.end_text(utterance_id)
        token2wav, found = engine.core._pipeline.token2wav, []
        while engine.heard[utterance_id].end is None:
            num_steps = token2wav.num_steps
            engine.core.step()
            if token2wav.num_steps > num_steps:
                found.append(token2wav.num_steps - num_steps)
        launches[is_concurrent] = found
        assert engine.core.counters["flow_steps"] == token2wav.num_steps == sum(found)
    assert launches[True] == [3] + [2, 1] * (len(launches[True]) // 2)
    assert set(launches[False]) == {1}
    assert sum(launches[True]) == sum(launches[False])
