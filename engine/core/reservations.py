"""Memory of the flow that active clauses are expected to fill yet: by a guess at each one's length, better as it goes.

What a clause turns out to need beyond it, it takes while there is some, or others make way.
"""

from collections.abc import Mapping
from typing import Any

from voicegate.engine.config import EngineConfig
from voicegate.engine.core import constants
from voicegate.engine.core.clause import Clause, ClauseState, Rendering
from voicegate.engine.flow.backend import FlowBackend


class Reservations:
    def __init__(self, config: EngineConfig, flow: FlowBackend[Any, Any]) -> None:
        self._config = config
        self._flow = flow
        self._num_in_all = max(flow.num_free_blocks, 1)
        self._num_blocks = 0  # that active clauses are expected to fill yet

    def has_room(self, clause: Clause) -> bool:
        """For all that it will likely fill, beside what is reserved."""
        return self._flow.num_free_blocks - self._num_blocks >= self.expected_blocks(clause)

    def expected_blocks(self, clause: Clause) -> int:
        """Blocks that it will fill, once it is begun or taken up again."""
        if clause.state is ClauseState.WAITING:
            return self._blocks_of_text(clause)
        num_more_tokens = constants.MORE_TOKENS if clause.state is ClauseState.GENERATING else 0
        return self._blocks_of(len(clause.tokens) + num_more_tokens)

    @property
    def gauges(self) -> Mapping[str, float]:
        """Blocks beside those of voices' prompts. From any thread."""
        return {
            "max_flow_blocks": self._num_in_all,
            "free_flow_blocks": self._flow.num_free_blocks,
            "reserved_flow_blocks": self._num_blocks,
        }

    def reserve(self, rendering: Rendering) -> None:
        self._num_blocks += rendering.num_missing_blocks

    def give_back(self, rendering: Rendering) -> None:
        self._num_blocks -= rendering.num_missing_blocks

    def note_filled(self, rendering: Rendering) -> None:
        """It may have filled some, or be expected to fill another number."""
        num_missing = max(rendering.num_expected_blocks - rendering.flow.num_own_blocks, 0)
        self._num_blocks += num_missing - rendering.num_missing_blocks
        rendering.num_missing_blocks = num_missing

    def note_text(self, clause: Clause) -> None:
        """More of its text is known."""
        if clause.rendering is not None:
            self._expect(clause.rendering, self._blocks_of_text(clause))

    def note_length(self, clause: Clause) -> None:
        """Its LLM pass is over. What it has beyond its reservation is taken as it comes."""
        if clause.rendering is not None:
            num_blocks = self._blocks_of(len(clause.tokens))
            self._expect(clause.rendering, min(num_blocks, clause.rendering.num_expected_blocks))

    def _expect(self, rendering: Rendering, num_blocks: int) -> None:
        rendering.num_expected_blocks = num_blocks
        self.note_filled(rendering)

    def _blocks_of_text(self, clause: Clause) -> int:
        num_text_tokens = len(clause.text_ids)
        if not clause.is_text_complete:
            least = constants.GROWING_TEXT_TOKENS if clause.num_sayable_letters else constants.STREAMED_TEXT_TOKENS
            num_text_tokens = max(num_text_tokens, least)
        return self._blocks_of(num_text_tokens * self._config.expected_tokens_per_text_token)

    def _blocks_of(self, num_tokens: int) -> int:
        return self._flow.num_speech_blocks(min(num_tokens, self._config.max_clause_tokens))
