"""Whose work may be done now, in order and by what it is: kept as it changes, one utterance at a time.

Hundreds may be due, and few of them change between two decisions.
"""

from collections.abc import Iterator
from operator import itemgetter
from typing import Final

from voicegate.engine.core.policy.urgency import CALM, LISTENER, Rank, StreamView

_RANK: Final = itemgetter(0)


class Side:
    """A batch of the flow is begun for unheard utterances or for heard ones; a small one may take others along.

    Each side has one running at a time, so no batch is left half solved for its equal.
    """

    def __init__(self) -> None:
        self.ready: dict[int, tuple[Rank, StreamView]] = {}  # with a block that is in no batch
        self.num_ready_frames = 0
        self._running: dict[int, tuple[Rank, int]] = {}  # with a block in a batch, and which
        self._num_pressed = 0

    @property
    def is_calm(self) -> bool:
        """All have plenty left, those who lack tokens of their next block among them."""
        return not self._num_pressed

    @property
    def running(self) -> int | None:
        return next((batch for _, batch in self._running.values()), None)

    @property
    def first(self) -> Rank | None:
        """Of the most urgent member, running or ready."""
        ranked = (*self._running.values(), *self.ready.values())
        return min(ranked, key=_RANK)[0] if ranked else None

    def put(self, view: StreamView, rank: Rank) -> None:
        self._num_pressed += rank[0] != CALM
        if view.batch is not None:
            self._running[view.key] = rank, view.batch
        elif view.block_frames:
            self.ready[view.key] = rank, view
            self.num_ready_frames += view.block_frames

    def drop(self, view: StreamView, rank: Rank) -> None:
        self._num_pressed -= rank[0] != CALM
        self._running.pop(view.key, None)
        if self.ready.pop(view.key, None) is not None:
            self.num_ready_frames -= view.block_frames


class Due:
    def __init__(self) -> None:
        self.unheard, self.heard = Side(), Side()
        self.decodes: dict[int, Rank] = {}  # of whose LLM pass a step may be launched
        self.prompts: dict[int, Rank] = {}  # the same, where it reads the whole prompt
        self.lacking: dict[int, Rank] = {}  # who have no block, but may have the tokens of one
        self._num_urgent_lacking = 0
        self._num_unheard_lacking = 0
        self._all: dict[int, tuple[Rank, StreamView]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[StreamView]:
        return (view for _, view in self._all.values())

    def __contains__(self, key: int) -> bool:
        return key in self._all

    @property
    def is_token_urgent(self) -> bool:
        """Whether somebody lacks tokens of the next block who is unheard, or about to run dry."""
        return self._num_urgent_lacking > 0

    @property
    def lacks_first_tokens(self) -> bool:
        """Whether somebody unheard lacks tokens of the first block."""
        return self._num_unheard_lacking > 0

    @property
    def has_blocks(self) -> bool:
        return bool(self.unheard.ready or self.heard.ready)

    def has_blocks_of(self, num_blocks: int) -> bool:
        """Whether one of them fits into so much of the flow's memory."""
        sides = (self.unheard, self.heard)
        return any(view.num_blocks <= num_blocks for side in sides for _, view in side.ready.values())

    def put(self, view: StreamView, rank: Rank) -> None:
        """In place of what it was; there is work of it, and that is due."""
        self.drop(view.key)
        self._all[view.key] = rank, view
        self._side(view).put(view, rank)
        if view.wants_llm:
            (self.prompts if view.needs_prefill else self.decodes)[view.key] = rank
        # Who is about to be heard for the first time lacks nothing yet.
        is_first_on_its_way = view.awaits_samples and view.deadline_s is None
        if view.batch is None and not view.block_frames and not is_first_on_its_way:
            self.lacking[view.key] = rank
            self._count_lacking(view, rank, 1)

    def drop(self, key: int) -> None:
        ranked = self._all.pop(key, None)
        if ranked is None:
            return
        rank, view = ranked
        self._side(view).drop(view, rank)
        self.decodes.pop(key, None)
        self.prompts.pop(key, None)
        if self.lacking.pop(key, None) is not None:
            self._count_lacking(view, rank, -1)

    def _count_lacking(self, view: StreamView, rank: Rank, change: int) -> None:
        if rank[0] < LISTENER:
            self._num_urgent_lacking += change
        if view.deadline_s is None:
            self._num_unheard_lacking += change

    def _side(self, view: StreamView) -> Side:
        return self.unheard if view.deadline_s is None else self.heard
