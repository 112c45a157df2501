"""A process with pipecat in it: the bot of the examples, and a listener who interrupts its first answer.

Reads where the LLM and the gateway are in JSON, prints what was heard of each answer.
"""

import asyncio
import base64
import json
import sys
from typing import Any

from loguru import logger
from pipecat.workers.runner import WorkerRunner

from tests.integration.pipecat_bot import Ear
from voicegate.clients.examples.chat import Llm
from voicegate.clients.examples.pipecat_bot import Bot

_PATIENCE_S = 60.0


async def converse(plan: dict[str, str]) -> list[str]:
    ear = Ear()
    bot = Bot(ear, Llm(plan["llm"], "stub"), gateway=plan["gateway"])
    has_started = asyncio.Event()

    @bot.worker.event_handler("on_pipeline_started")
    async def _on_started(_worker: Any, _frame: Any) -> None:
        has_started.set()

    async def talk() -> list[str]:
        await has_started.wait()
        heard = []
        await bot.ask("Tell me a story.")
        await ear.has_words.wait()
        asking = asyncio.create_task(bot.ask("Stop!"))
        ear.is_interrupted.clear()
        await ear.is_interrupted.wait()
        heard.append(ear.heard.audio)
        ear.begin()
        await asking
        await ear.has_stopped.wait()
        heard.append(ear.heard.audio)
        await bot.finish()
        return [base64.b64encode(audio).decode() for audio in heard]

    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(bot.worker)
    async with asyncio.timeout(_PATIENCE_S):
        _, heard = await asyncio.gather(runner.run(), talk())
    return heard


if __name__ == "__main__":
    logger.remove()
    json.dump(asyncio.run(converse(json.load(sys.stdin))), sys.stdout)
