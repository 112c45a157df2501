"""A sentence that grows, said before anybody listens: how long blocks take here is known from the first listener on.

Else the first sentence after a start is begun as if the next block came at once. On two CPU cores its listener had an
underrun between the first block and the second (docs/adr/0006).
"""

import time
from typing import Final

from voicegate.engine.config import EngineConfig
from voicegate.engine.core.core import EngineCore
from voicegate.engine.core.growth import BlockTime
from voicegate.engine.core.stages import Stages
from voicegate.engine.interface import EngineError, SpeakingMode, UtteranceId, UtteranceRequest
from voicegate.engine.llm.backend import LlmDied

# Words for two readings, and no end: a reading after the end says nothing of what a block takes.
_TEXT: Final = "The train to the coast leaves at nine in the morning and stops at every village by the sea "


def rehearsed(config: EngineConfig, stages: Stages, voice: str) -> BlockTime:
    """Times of blocks where nothing else is to be done. Raises EngineError where the speech LLM dies.

    Of a quick engine the first block alone: its next one is made when the listener needs it, and there is none.
    """
    block_time = BlockTime()
    core = EngineCore(config, stages, time.monotonic, lambda _: None, block_time=block_time)
    utterance_id = UtteranceId("rehearsal")
    request = UtteranceRequest(utterance_id, voice, mode=SpeakingMode.INCREMENTAL, lead_ms=config.max_lead_ms)
    core.submit(request, seed=0)
    core.push_text(utterance_id, _TEXT)
    try:
        core.run_until_idle()
        core.cancel(utterance_id, None)
        core.run_until_idle()
    except LlmDied as error:
        raise EngineError(f"rehearsal: the speech LLM died: {error}") from error
    return block_time
