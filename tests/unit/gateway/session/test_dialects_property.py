"""Dialects on a real Session, with an engine that answers in unlucky orders: each context has one end."""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import orjson
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unit.gateway.sessions import INFO
from voicegate.engine import interface as engine
from voicegate.gateway.session.actions import (
    CancelUtterance,
    Close,
    EndText,
    FlushText,
    PushText,
    Send,
    SendAudio,
    Submit,
    Withdraw,
)
from voicegate.gateway.session.opening import SessionLimits
from voicegate.gateway.session.session import Session
from voicegate.protocol import codec
from voicegate.protocol import messages as wire
from voicegate.protocol.dialects.cartesia import Cartesia
from voicegate.protocol.dialects.deepgram import Deepgram, Settings
from voicegate.protocol.dialects.dialect import Dialect, Effect, Hangup, Reply, Speech
from voicegate.protocol.dialects.elevenlabs import MultiStream
from voicegate.protocol.dialects.elevenlabs_speaker import Settings as ElevenlabsSettings
from voicegate.protocol.dialects.vllm_omni import VllmOmni
from voicegate.protocol.formats import OutputFormat

NOW_S = 0.0
LIMITS = SessionLimits(contexts=3, context_text_bytes=16, unanswered_flushes=3).of_a_dialect(None)
NAMES = st.sampled_from(["a", "b", "c", "d", None])
TEXTS = st.sampled_from(["", " ", "hi ", "far too long a text"])
BOOLEANS = st.sampled_from([None, True, False])


@dataclass
class Socket:
    """A dialect, a session, an engine, and what lies between them."""

    dialect: Dialect
    session: Session = field(default_factory=lambda: Session(session_id="s", info=INFO, limits=LIMITS))
    answers: deque[Any] = field(default_factory=deque)  # not written yet
    events: deque[engine.EngineEvent] = field(default_factory=deque)  # not handled yet
    waiting: deque[engine.UtteranceId] = field(default_factory=deque)  # for room
    handles: dict[int, str] = field(default_factory=dict)
    opened: list[str] = field(default_factory=list)
    sending: deque[Reply] = field(default_factory=deque)  # the writer waits for the peer to take them
    frames: list[Any] = field(default_factory=list)
    is_closed: bool = False

    def __post_init__(self) -> None:
        self._act(self.session.greet())
        self.write()

    def say(self, message: dict[str, Any]) -> None:
        self._perform(self.dialect.receive(orjson.dumps({k: v for k, v in message.items() if v is not None}).decode()))

    def admit(self, *, is_refused: bool) -> None:
        if self.waiting:
            utterance_id = self.waiting.popleft()
            error = engine.Overloaded("full", retry_after_ms=1)
            self._act(
                self.session.refused(utterance_id, error) if is_refused else self.session.submitted(utterance_id, NOW_S)
            )

    def handle(self) -> None:
        if self.events:
            self._act(self.session.engine_event(self.events.popleft(), NOW_S))

    def write(self) -> None:
        """One frame, or what comes of one message."""
        if self.sending:
            self._send_frame(self.sending.popleft())
        elif self.answers:
            self._write(self.answers.popleft())

    def _write(self, item: Any) -> None:
        match item:
            case Reply():
                self._send_frame(item)
            case Hangup():
                self.is_closed = True
            case SendAudio(message=audio):
                context = self.handles[audio.handle]
                data = b"".join(audio.packets)
                self._write_steps(self.dialect.speak(Speech(context, data, 0, 1, is_last=audio.is_last)))
            case Send(message=message):
                if isinstance(message, wire.Opened):
                    self.handles[message.handle] = message.context
                    self.dialect.output(message.context)
                self._write_steps(self.dialect.word(message))

    def finish(self) -> None:
        while self.sending or self.answers or self.events or self.waiting:
            self.admit(is_refused=False)
            self.handle()
            self.write()

    def _write_steps(self, effects: Any) -> None:
        """As Connection does: before the next `write`, which sends another frame, the client may speak and be heard."""
        for effect in effects:
            if isinstance(effect, Reply):
                self.sending.append(effect)
            else:
                self._perform([effect])

    def _send_frame(self, reply: Reply) -> None:
        if isinstance(reply.frame, str):
            self.frames.append(orjson.loads(reply.frame))

    def _perform(self, effects: Any) -> None:
        for effect in effects:
            if isinstance(effect, Reply | Hangup):
                self.answers.append(effect)
                continue
            self._send(effect)

    def _send(self, effect: Effect) -> None:
        assert not isinstance(effect, Reply | Hangup)
        assert codec.decode_client(codec.encode(effect)) == effect, "a session takes what a native client may send"
        if isinstance(effect, wire.Open):
            self.opened.append(effect.context)
        else:
            assert getattr(effect, "context", None) in self.opened, "nothing is said of a context before it is opened"
        self._act(self.session.receive(effect, NOW_S))

    def _act(self, actions: Any) -> None:
        for action in actions:
            match action:
                case Send() | SendAudio():
                    self.answers.append(action)
                case Submit(request=request):
                    self.waiting.append(request.utterance_id)
                case Withdraw(utterance_id=utterance_id):
                    self.waiting.remove(utterance_id)
                case PushText(utterance_id=utterance_id, text=text):
                    words = engine.AlignedText(text, 0, 20, 0, len(text))
                    self.events.append(engine.Alignment(utterance_id, (words,), estimated=True))
                    self.events.append(engine.AudioReady(utterance_id, (b"\0" * 960,), 0))
                case FlushText(utterance_id=utterance_id, flush_id=flush_id):
                    self.events.append(engine.Flushed(utterance_id, flush_id, 20))
                case EndText(utterance_id=utterance_id):
                    self.events.append(engine.Done(utterance_id, 20, 1, 960))
                case CancelUtterance(utterance_id=utterance_id):
                    # Earlier audio is on its way, and the end comes after it.
                    self.events.append(engine.Cancelled(utterance_id, 20, 960, "", ""))
                case Close():
                    raise AssertionError("no session ends here")

    def run(self, effects: list[Any]) -> None:
        """Messages of the client's, and what the server comes to between them."""
        for effect in effects:
            match effect:
                case "write":
                    self.write()
                case "handle":
                    self.handle()
                case "admit":
                    self.admit(is_refused=False)
                case "refuse":
                    self.admit(is_refused=True)
                case _:
                    self.say(effect)


def steps_of(message: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[list[Any]]:
    between = st.sampled_from(["write", "write", "handle", "handle", "admit", "refuse"])
    return st.lists(st.one_of(message, between), max_size=40)


def find_voice(_name: str) -> str | None:
    return None


ELEVENLABS = st.fixed_dictionaries({"context_id": NAMES, "text": TEXTS, "flush": BOOLEANS, "close_context": BOOLEANS})
CARTESIA = st.fixed_dictionaries(
    {
        "context_id": NAMES,
        "transcript": TEXTS,
        "continue": BOOLEANS,
        "flush": BOOLEANS,
        "cancel": BOOLEANS,
        "max_buffer_delay_ms": st.sampled_from([0, 3000]),
    }
)
DEEPGRAM = st.fixed_dictionaries({"type": st.sampled_from(["Speak", "Flush", "Clear"]), "text": TEXTS})
OMNI = st.fixed_dictionaries(
    {"type": st.sampled_from(["input.text", "input.done", "input.cancel", "session.config"]), "text": TEXTS}
)

OMNI_TEXT, OMNI_DONE = {"type": "input.text", "text": "hi "}, {"type": "input.done"}


@given(steps_of(ELEVENLABS), st.booleans())
@settings(max_examples=150)
def test_elevenlabs_contexts_have_one_end(effects: list[Any], is_auto: bool) -> None:
    dialect = MultiStream(ElevenlabsSettings("x", OutputFormat(), is_auto=is_auto), find_voice)
    socket = Socket(dialect)
    socket.run(effects)
    for native, context in socket.session.contexts.items():
        assert dialect._speaker.by_native[native].clock.num_chars == context.num_characters, "both count alike"
    for name in ("a", "b", "c", "d", "default"):
        socket.say({"context_id": name, "close_context": True})
    socket.finish()
    assert not dialect._speaker.by_native
    ends = [frame["contextId"] for frame in socket.frames if frame.get("isFinal")]
    assert sorted(ends) == sorted(context.partition("#")[0] for context in socket.opened)
    socket.say({"close_socket": True})
    socket.finish()
    assert socket.is_closed


@given(steps_of(CARTESIA))
@settings(max_examples=150)
def test_cartesia_contexts_have_one_end(effects: list[Any]) -> None:
    socket = Socket(Cartesia(find_voice))
    socket.run(effects)
    for name in ("a", "b", "c", "d"):
        socket.say({"context_id": name, "cancel": True})
    socket.finish()
    assert not socket.session.contexts
    dones = [frame for frame in socket.frames if frame["type"] == "done"]
    fatal = [frame for frame in socket.frames if frame.get("error_code") == "concurrency_limited"]
    assert len(dones) + len(fatal) == len(socket.opened)


@example([{"type": "Speak", "text": "hi "}, *[{"type": "Flush"}] * 4])
@given(steps_of(DEEPGRAM))
@settings(max_examples=150)
def test_deepgram_flushes_have_an_answer(effects: list[Any]) -> None:
    socket = Socket(Deepgram(Settings("x", OutputFormat()), find_voice))
    socket.run(effects)
    socket.finish()
    socket.say({"type": "Flush"})
    socket.finish()
    kinds = [frame["type"] for frame in socket.frames]
    assert kinds.count("Cleared") == sum(isinstance(effect, dict) and effect["type"] == "Clear" for effect in effects)
    assert kinds[-1] == "Flushed", "whatever was before"
    assert not socket.session.contexts, "between turns there is none"


# The next utterance begins with the end of the first, of which the client has not heard yet.
@example([OMNI_TEXT, OMNI_DONE, OMNI_TEXT, "admit", *["handle"] * 3, *["write"] * 6, OMNI_TEXT])
@given(steps_of(OMNI))
@settings(max_examples=150)
def test_vllm_omni_utterances_have_one_end(effects: list[Any]) -> None:
    socket = Socket(VllmOmni(find_voice))
    socket.run(effects)
    socket.say({"type": "input.cancel"})
    socket.finish()
    assert not socket.session.contexts
    ends = [frame["utterance_index"] for frame in socket.frames if frame["type"] == "session.done"]
    assert ends == list(range(len(socket.opened)))
