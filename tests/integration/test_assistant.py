"""The assistant of the examples: an LLM's stream, a real gateway, and a listener who interrupts."""

import asyncio
import io
import os
import signal
import sys
import threading
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import av
import pytest

from tests.integration.stub_llm import StubLlm
from tests.integration.wire_client import serving
from tests.support.patience import PATIENCE_S
from voicegate.clients.examples.assistant import Assistant, Player
from voicegate.clients.examples.chat import Llm, LlmError
from voicegate.clients.examples.terminal_assistant import Recorder, main
from voicegate.clients.python.audio import Audio
from voicegate.clients.python.client import connect
from voicegate.clients.python.errors import ContextFailed
from voicegate.engine.fake.engine import Fault, FaultKind, Script
from voicegate.protocol import messages as wire

pytestmark = pytest.mark.usefixtures("no_hang")

MS_PER_CHARACTER = 60


class Listener:
    """Players whose listener has heard all that came, or says when."""

    def __init__(self) -> None:
        self.players: list[Recorder] = []
        self.has_heard = asyncio.Event()

    @asynccontextmanager
    async def open_player(self, _opened: wire.Opened) -> AsyncIterator[Player]:
        player = Ear(self.has_heard)
        self.players.append(player)
        yield player

    def heard_ms(self, turn: int) -> int:
        return self.players[turn].stop()


class Ear(Recorder):
    def __init__(self, has_heard: asyncio.Event) -> None:
        super().__init__()
        self._has_heard = has_heard

    def play(self, audio: object) -> None:
        super().play(audio)  # type: ignore[arg-type]
        self._has_heard.set()


def spoken_ms(text: str) -> int:
    return sum(map(str.isalnum, text)) * MS_PER_CHARACTER


async def test_answers_are_spoken_and_remembered() -> None:
    listener, shown, failures = Listener(), list[str](), list[Exception]()
    with StubLlm(["Hel", "lo there."], ["And ", "more."]).serving() as stub:
        stub.may_go_on.set()
        async with serving() as served, connect(served.url) as gate:
            assistant = Assistant(
                gate,
                Llm(stub.base_url, "stub"),
                listener.open_player,
                instructions="Be brief.",
                on_text=shown.append,
                on_failure=failures.append,
            )
            for question in ("Hi", "And?"):
                await assistant.ask(question)
                await assistant.finished()
        assert stub.conversations[1] == [
            ("system", "Be brief."),
            ("user", "Hi"),
            ("assistant", "Hello there."),
            ("user", "And?"),
        ]
    assert (shown, failures) == (["Hel", "lo there.", "And ", "more."], [])
    assert listener.heard_ms(0) == pytest.approx(spoken_ms("Hello there."), abs=40)


@pytest.mark.parametrize("is_written", [False, True])
async def test_who_interrupts_hears_no_more_and_the_llm_is_told_what_was_heard(is_written: bool) -> None:
    listener, failures = Listener(), list[Exception]()
    long = "Well, that is a long story. " + "word " * 100
    with StubLlm([long, "and more"], ["Yes."]).serving() as stub:
        if is_written:
            stub.may_go_on.set()
        async with serving(Script(real_time_factor=1.0)) as served, connect(served.url) as gate:
            llm = Llm(stub.base_url, "stub")
            assistant = Assistant(gate, llm, listener.open_player, on_failure=failures.append)
            await assistant.ask("Tell me.")
            await listener.has_heard.wait()
            await assistant.interrupt()
            heard_ms = listener.heard_ms(0)
            await served.until(lambda engine: engine.num_live == 0)
            assert len(served.engine.cancels) == 1
            assert listener.heard_ms(0) == heard_ms, "nothing follows"
            stub.may_go_on.set()
            await assistant.ask("Stop!")
            await assistant.finished()
            assert listener.heard_ms(1) == pytest.approx(spoken_ms("Yes."), abs=40)
        heard = dict(stub.conversations[1])["assistant"]
        assert long.startswith(heard)
        assert 0 < spoken_ms(heard) <= heard_ms
    assert failures == []


async def test_what_has_come_and_was_not_played_is_not_heard() -> None:
    class Loudspeaker(Recorder):
        def play(self, audio: Audio) -> None:
            super().play(audio)
            if super().stop() >= spoken_ms("Well, that is a long story."):
                has_come.set()

        def stop(self) -> int:
            return spoken_ms("Well, that")

    @asynccontextmanager
    async def open_player(_opened: wire.Opened) -> AsyncIterator[Player]:
        yield Loudspeaker()

    has_come = asyncio.Event()
    with StubLlm(["Well, that is a long story. " + "word " * 100]).serving() as stub:
        stub.may_go_on.set()
        async with serving(Script(real_time_factor=0.0)) as served, connect(served.url) as gate:
            assistant = Assistant(gate, Llm(stub.base_url, "stub"), open_player, on_failure=pytest.fail)
            await assistant.ask("Tell me.")
            await has_come.wait()
            await assistant.interrupt()
    assert assistant.messages[-1]["content"].strip() == "Well, that"


async def test_a_question_interrupts_by_itself_and_silence_needs_no_answer() -> None:
    listener = Listener()
    with StubLlm(["word " * 200], ["Yes."]).serving() as stub:
        async with serving(Script(real_time_factor=1.0)) as served, connect(served.url) as gate:
            assistant = Assistant(gate, Llm(stub.base_url, "stub"), listener.open_player, on_failure=pytest.fail)
            await assistant.interrupt()
            await assistant.ask("One")
            await listener.has_heard.wait()
            stub.may_go_on.set()
            await assistant.ask("Two")
            await assistant.finished()
            await assistant.interrupt()  # all was heard
        assert [role for role, _ in stub.conversations[1]] == ["system", "user", "assistant", "user"]
        assert assistant.messages[-1] == {"role": "assistant", "content": "Yes."}


async def test_an_answer_that_fails_is_told_and_the_next_one_comes() -> None:
    failures: list[Exception] = []
    listener = Listener()
    script = Script(faults={0: Fault(FaultKind.FAIL, after_ms=120)})
    with StubLlm(["Hello there."]).serving() as stub:
        stub.may_go_on.set()
        async with serving(script) as served, connect(served.url) as gate:
            assistant = Assistant(gate, Llm(stub.base_url, "stub"), listener.open_player, on_failure=failures.append)
            await assistant.ask("One")
            await assistant.finished()
            await assistant.ask("Two")
            await assistant.finished()
            nowhere = Llm("http://127.0.0.1:9/v1", "stub")
            other = Assistant(gate, nowhere, listener.open_player, on_failure=failures.append)
            await other.ask("Three")
            await other.finished()
            await served.until(lambda engine: engine.num_live == 0)
    assert [type(failure) for failure in failures] == [ContextFailed, LlmError]
    assert assistant.messages[-1] == {"role": "assistant", "content": "Hello there."}
    assert [each["role"] for each in other.messages] == ["system", "user"]


class Typist(io.StringIO):
    """Standard input: a line, and the next once the audio of the first has come."""

    def __init__(self, lines: list[str], may_type: threading.Event) -> None:
        super().__init__()
        self._lines = lines
        self._may_type = may_type

    def __iter__(self) -> "Typist":
        return self

    def __next__(self) -> str:
        if not self._lines:
            raise StopIteration
        line = self._lines.pop(0)
        if line != "Hi\n":
            self._may_type.wait(PATIENCE_S)
        return line


async def test_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "new"
    with StubLlm(["word " * 200], ["Yes, of course."]).serving() as stub:
        async with serving(Script(real_time_factor=1.0)) as served:
            may_type = threading.Event()
            monkeypatch.setenv("OPENAI_BASE_URL", stub.base_url)
            monkeypatch.setenv("OPENAI_MODEL", "stub")
            monkeypatch.setattr("sys.stdin", Typist(["Hi\n", "\n", "Really?\n"], may_type))
            monkeypatch.setattr("sys.argv", ["terminal_assistant", "--url", served.url, "-o", str(folder)])
            running = asyncio.create_task(asyncio.to_thread(main))
            await served.until(lambda engine: engine.num_live == 1)
            stub.may_go_on.set()
            may_type.set()
            assert await running == 0
    shown = capsys.readouterr().out
    assert "Yes, of course." in shown
    with av.open(str(folder / "answer-2.opus")) as container:
        num_samples = sum(frame.samples for frame in container.decode(audio=0))
    assert num_samples == spoken_ms("Yes, of course.") * 48
    assert (folder / "answer-1.opus").stat().st_size > 0


def test_the_terminal_without_a_gateway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["terminal_assistant", "--url", "ws://127.0.0.1:9", "-o", str(tmp_path)])
    assert main() == 1
    assert capsys.readouterr().err.startswith("terminal_assistant: ")


async def test_the_terminal_ends_quietly_where_it_is_interrupted(tmp_path: Path) -> None:
    async with serving() as served:
        terminal = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "voicegate.clients.examples.terminal_assistant"),
            *("--url", served.url, "-o", str(tmp_path)),
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            env={
                **os.environ,
                "OPENAI_BASE_URL": "http://127.0.0.1:9",
                "OPENAI_MODEL": "stub",
                "PYTHONUNBUFFERED": "1",
            },
        )
        assert terminal.stdout is not None
        assert (await terminal.stdout.readline()).startswith(b"Type and press Enter")
        terminal.send_signal(signal.SIGINT)
        _, complaints = await terminal.communicate()
    # asyncio may complain of a connection that was given up in the moment it stood.
    assert (terminal.returncode, b"KeyboardInterrupt" in complaints) == (130, False), complaints.decode()
