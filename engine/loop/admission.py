"""Which clauses get room in the models next, and who waits for it. Decides by urgency; starts nothing itself."""

from collections.abc import Iterator, Mapping
from operator import itemgetter

from voicegate.engine.config import EngineConfig
from voicegate.engine.loop.clause import Clause
from voicegate.engine.loop.outlook import Outlook
from voicegate.engine.loop.pipeline import Pipeline
from voicegate.engine.loop.utterance import Utterance
from voicegate.engine.loop.watchlist import WatchList

# Where many wait for room, one in so many of them start together, but no more than one in so many of the active
# clauses, whose ends make the room. Higher -> less waiting for company; lower -> fewer and fuller LLM steps.
_GROUP_SHARE = 6


class Admission:
    def __init__(self, config: EngineConfig, pipeline: Pipeline, outlook: Outlook, watched: WatchList) -> None:
        self._config = config
        self._pipeline = pipeline
        self._outlook = outlook
        self._watched = watched
        self._waiting: set[int] = set()
        self._num_releases = 0  # of the pipeline, when those who wait were last looked at

    @property
    def is_full(self) -> bool:
        """Whether a newcomer would wait behind others."""
        return len(self._waiting) >= self._config.max_waiting_utterances

    @property
    def is_short(self) -> bool:
        """Whether anybody waits."""
        return bool(self._waiting)

    @property
    def _group_size(self) -> int:
        """How many clauses end before others start: always fewer than are active, so that it comes to that."""
        return max(min(len(self._waiting), self._pipeline.num_active) // _GROUP_SHARE, 1)

    def forget(self, key: int) -> None:
        self._waiting.discard(key)

    def admit(self, utterances: Mapping[int, Utterance], now_s: float) -> Iterator[tuple[int, Clause]]:
        """Clauses to start, each before the next is asked for: the most urgent first, until there is no room.

        Of the utterances that were touched, and of those who wait if enough was given back since.
        """
        num_released = self._pipeline.num_releases - self._num_releases
        is_closed = bool(self._waiting) and num_released < self._group_size
        if not is_closed:
            self._num_releases = self._pipeline.num_releases
            self._watched.touched |= self._waiting
        candidates = []
        for key in self._watched.touched:
            utterance = utterances[key]
            clause = self._outlook.startable(utterance)
            self._waiting.discard(key)
            if clause is None:
                continue
            starts_at_s = self._outlook.starts_at_s(utterance)
            if starts_at_s > now_s:
                self._watched.set_alarm(key, starts_at_s)
            else:
                candidates.append((utterance.urgency, key, clause))
        candidates.sort(key=itemgetter(0, 1))
        for index, (_, key, clause) in enumerate(candidates):
            # While some wait for room, a smaller newcomer waits with them: else a large clause might wait for ever.
            if is_closed or not self._pipeline.can_start(clause):
                self._waiting.update(waiting for _, waiting, _ in candidates[index:])
                return
            yield key, clause
