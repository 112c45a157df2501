"""A LiveKit agent whose LLM is any OpenAI-compatible server and whose voice is this gateway. Write to it in its room.

pip install '.[livekit]' ./clients/livekit
export LIVEKIT_URL=... LIVEKIT_API_KEY=... LIVEKIT_API_SECRET=...
export OPENAI_BASE_URL=http://127.0.0.1:11434/v1 OPENAI_MODEL=llama3.2 GATEWAY=127.0.0.1:8080
python -m voicegate.clients.examples.livekit_agent start

Without a LiveKit server, `console` instead of `start` greets you through the sound card (and answers what it hears once
it has an `stt`); `console --text` takes what you type, and answers in writing alone.
"""

import os
from typing import Any

from voicegate.clients.examples.chat import Llm, llm_of_environment

try:
    from livekit.agents import Agent, AgentServer, AgentSession, JobContext, cli
    from livekit.plugins import openai, voicegate
except ModuleNotFoundError as error:
    raise SystemExit(f"{error.name} is not installed: pip install '.[livekit]' ./clients/livekit") from error

INSTRUCTIONS = "Answer in a few short sentences, as one speaks."
GREETING = "Hello. What would you like to know?"

server = AgentServer()


def new_session(llm: Llm, *, gateway: str, voice: str | None = None) -> AgentSession:
    """`gateway`: its host and port. One that is spoken to needs `stt` too."""
    return AgentSession(
        llm=openai.LLM(model=llm.model, base_url=llm.base_url, api_key=llm.api_key or "none"),
        tts=voicegate.TTS(url=f"ws://{gateway}", voice=voice),
        use_tts_aligned_transcript=True,  # after an interruption the LLM knows what was heard
    )


async def begin(session: AgentSession, **where: Any) -> None:
    """`where`: what the session is started with, such as its room. It greets whoever is there."""
    await session.start(Agent(instructions=INSTRUCTIONS), **where)
    session.say(GREETING)


@server.rtc_session()
async def answer(context: JobContext) -> None:
    session = new_session(llm_of_environment(), gateway=os.environ.get("GATEWAY", "127.0.0.1:8080"))
    await begin(session, room=context.room)


if __name__ == "__main__":
    cli.run_app(server)
