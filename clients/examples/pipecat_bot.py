"""A pipecat bot whose LLM is any OpenAI-compatible server and whose voice is this gateway: type to it, hear it.

apt-get install gcc portaudio19-dev
pip install '.[pipecat]' ./clients/pipecat
export OPENAI_BASE_URL=http://127.0.0.1:11434/v1 OPENAI_MODEL=llama3.2
python -m voicegate.clients.examples.pipecat_bot
"""

import argparse
import asyncio
import sys

from voicegate.clients.examples.chat import Llm, llm_of_environment
from voicegate.clients.python.threaded import iterate_in_thread

try:
    from pipecat.frames.frames import EndFrame, Frame, InterruptionFrame, LLMMessagesAppendFrame
    from pipecat.pipeline.pipeline import Pipeline
    from pipecat.pipeline.worker import PipelineWorker
    from pipecat.processors.aggregators.llm_context import LLMContext
    from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair
    from pipecat.processors.frame_processor import FrameProcessor
    from pipecat.services.openai.llm import OpenAILLMService
    from pipecat.workers.runner import WorkerRunner
    from pipecat_voicegate import VoicegateTTSService
except ModuleNotFoundError as error:
    raise SystemExit(f"{error.name} is not installed: pip install '.[pipecat]' ./clients/pipecat") from error

INSTRUCTIONS = "Answer in a few short sentences, as one speaks."


class Bot:
    """`output`: where its speech goes, such as a transport's output. The context remembers what was heard."""

    def __init__(self, output: FrameProcessor, llm: Llm, *, gateway: str, voice: str | None = None) -> None:
        """`gateway`: its host and port."""
        self.context = LLMContext()
        aggregators = LLMContextAggregatorPair(self.context)
        thinking = OpenAILLMService(
            api_key=llm.api_key or "none",
            base_url=llm.base_url,
            settings=OpenAILLMService.Settings(model=llm.model, system_instruction=INSTRUCTIONS),
        )
        speaking = VoicegateTTSService(url=f"ws://{gateway}", settings=VoicegateTTSService.Settings(voice=voice))
        pipeline = Pipeline([aggregators.user(), thinking, speaking, output, aggregators.assistant()])
        self.worker = PipelineWorker(pipeline, cancel_on_idle_timeout=False)
        self._is_silent = asyncio.Event()
        self.worker.set_reached_downstream_filter((InterruptionFrame,))

        @self.worker.event_handler("on_frame_reached_downstream")
        async def _note_silence(_worker: PipelineWorker, _frame: Frame) -> None:
            self._is_silent.set()

    async def ask(self, question: str) -> None:
        """Barge-in: what is being spoken ends, the context has what was heard of it, and then the question."""
        self._is_silent.clear()
        await self.worker.queue_frame(InterruptionFrame())
        await self._is_silent.wait()
        asked = LLMMessagesAppendFrame([{"role": "user", "content": question}], run_llm=True)
        await self.worker.queue_frame(asked)

    async def finish(self) -> None:
        """Finishes: pending speech is heard to its end."""
        await self.worker.queue_frame(EndFrame())


async def converse(gateway: str, voice: str | None) -> None:
    # Not above: it needs PortAudio, which a bot in a call does without.
    from pipecat.transports.local.audio import LocalAudioTransport, LocalAudioTransportParams  # noqa: PLC0415

    transport = LocalAudioTransport(LocalAudioTransportParams(audio_out_enabled=True))
    bot = Bot(transport.output(), llm_of_environment(), gateway=gateway, voice=voice)

    async def read() -> None:
        async for line in iterate_in_thread(lambda: sys.stdin):
            await bot.ask(line.strip())
        await bot.finish()

    runner = WorkerRunner()
    await runner.add_workers(bot.worker)
    await asyncio.gather(runner.run(), read())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gateway", default="127.0.0.1:8080", help="its host and port")
    parser.add_argument("--voice", help="one of its voices (default: its own choice)")
    options = parser.parse_args()
    asyncio.run(converse(options.gateway, options.voice))


if __name__ == "__main__":
    main()
