"""Whatever a client sends and whatever the engine does within its contract: every opened context ends exactly once,
nothing follows its end, sequence numbers have no gaps, no audio follows a cancel, and the engine hears no nonsense."""

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from voicegate.engine import interface as engine
from voicegate.engine.interface import EngineInfo, SpeakingMode, UtteranceId, VoiceInfo
from voicegate.gateway.auth.keyring import Allowance
from voicegate.gateway.session.actions import (
    Action,
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
from voicegate.gateway.session.prelude import may_sound
from voicegate.gateway.session.quota import NOBODY, Holding, QuotaLimits, Quotas
from voicegate.gateway.session.session import Session
from voicegate.protocol import messages as wire
from voicegate.protocol.audio_message import AudioMessage

INFO = EngineInfo("m", (VoiceInfo("anna", ""),), "anna", (SpeakingMode.AUTO,), 312, 8, 3000)
IDLE_S = 100.0
CONTEXT_IDS = st.sampled_from(["a", "b", "c"])


@dataclass
class ModelUtterance:
    """The engine's further options for an utterance."""

    is_ended: bool = False
    is_cancelled: bool = False
    flush_ids: list[str] = field(default_factory=list)
    num_chars: int = 0
    is_at_rest: bool = False  # as its session knows it


@dataclass
class HeardContext:
    """A client's knowledge of one incarnation of a context."""

    handle: int
    next_sequence: int = 0
    had_last: bool = False
    sent_cancel: bool = False


class SessionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.quotas = Quotas(QuotaLimits(per_address=Allowance(contexts=2, utterances=1)))
        limits = SessionLimits(contexts=3, text_bytes=8, context_text_bytes=16, context_idle_s=IDLE_S)
        self.session = Session(session_id="s", info=INFO, limits=limits, quotas=self.quotas)
        self.now_s = 0.0
        self.engine: dict[UtteranceId, ModelUtterance] = {}
        self.ever_submitted: set[UtteranceId] = set()
        self.heard: dict[str, HeardContext] = {}
        self.num_opened = self.num_ended = 0
        self.is_closed = False
        self.waiting: set[UtteranceId] = set()  # for the engine's answer
        self.is_answer_late = False

    # --- the two sides, as the shell would run them -------------------------------------------------------

    def perform(self, actions: list[Action]) -> None:
        for action in actions:
            assert not self.is_closed or isinstance(action, CancelUtterance), f"{action} after the close"
            match action:
                case Submit(request=request, is_return=is_return):
                    self.submit(request.utterance_id, is_return=is_return)
                case Withdraw(utterance_id=utterance_id):
                    self.waiting.remove(utterance_id)
                case PushText(utterance_id=utterance_id, text=text):
                    model = self.model(utterance_id)
                    assert text
                    assert not model.is_ended
                    assert not model.is_at_rest or model.is_cancelled or not may_sound(text), (
                        "it asks for a place first"
                    )
                    model.num_chars += len(text)
                case FlushText(utterance_id=utterance_id, flush_id=flush_id):
                    assert not self.model(utterance_id).is_ended
                    self.model(utterance_id).flush_ids.append(flush_id)
                case EndText(utterance_id=utterance_id):
                    assert not self.model(utterance_id).is_ended
                    self.model(utterance_id).is_ended = True
                case CancelUtterance(utterance_id=utterance_id):
                    assert not self.model(utterance_id).is_cancelled, "one cancel is enough"
                    self.model(utterance_id).is_cancelled = True
                case Send(message=message):
                    self.hear(message)
                case SendAudio(message=message):
                    self.hear_audio(message)
                case Close():
                    self.is_closed = True

    def model(self, utterance_id: UtteranceId) -> ModelUtterance:
        # The engine may have ended it already: then the call is a no-op by contract.
        assert utterance_id in self.ever_submitted
        return self.engine.get(utterance_id, ModelUtterance())

    def submit(self, utterance_id: UtteranceId, *, is_return: bool) -> None:
        assert (utterance_id in self.ever_submitted) is is_return, "utterance ids are never used twice"
        assert not is_return or self.engine[utterance_id].is_at_rest
        assert utterance_id not in self.waiting
        self.waiting.add(utterance_id)
        if not self.is_answer_late:
            self.answer(utterance_id, is_refused=False)

    def answer(self, utterance_id: UtteranceId, *, is_refused: bool) -> None:
        self.waiting.remove(utterance_id)
        if is_refused:
            self.perform(self.session.refused(utterance_id, engine.Overloaded("full", retry_after_ms=1)))
        else:
            self.ever_submitted.add(utterance_id)
            self.engine.setdefault(utterance_id, ModelUtterance()).is_at_rest = False
            self.perform(self.session.submitted(utterance_id, self.now_s))

    def hear(self, message: wire.ServerMessage) -> None:
        match message:
            case wire.Opened(context=context, handle=handle):
                assert context not in self.heard
                assert handle not in {other.handle for other in self.heard.values()}
                self.heard[context] = HeardContext(handle)
                self.num_opened += 1
            case wire.Alignment(context=context) | wire.Flushed(context=context):
                assert not self.heard[context].sent_cancel
            case wire.Done(context=context):
                ended = self.heard.pop(context)
                assert ended.had_last or ended.sent_cancel
                self.num_ended += 1
            case wire.Cancelled(context=context):
                assert self.heard.pop(context).sent_cancel
                self.num_ended += 1
            case wire.Error(fatal=True, context=str(context)) if context in self.heard:
                del self.heard[context]
                self.num_ended += 1
            case _:
                pass

    def hear_audio(self, message: AudioMessage) -> None:
        (heard,) = [heard for heard in self.heard.values() if heard.handle == message.handle]
        assert not heard.sent_cancel
        assert not heard.had_last
        assert message.sequence == heard.next_sequence
        assert message.is_first == (message.sequence == 0)
        assert message.is_last == (not message.packets)
        heard.next_sequence += 1
        heard.had_last = message.is_last

    # --- what a client does -------------------------------------------------------------------------------

    def receive(self, message: wire.ClientMessage) -> None:
        self.now_s += 0.01
        self.perform(self.session.receive(message, self.now_s))

    @initialize()
    def greet(self) -> None:
        self.perform(self.session.greet())

    @rule(
        context=CONTEXT_IDS,
        voice=st.sampled_from([None, "anna", "nobody"]),
        burst_ms=st.sampled_from([None, 0, 40]),
    )
    def send_open(self, context: str, voice: str | None, burst_ms: int | None) -> None:
        self.receive(wire.Open(context=context, voice=voice, pace=wire.Pace(burst_ms=burst_ms)))

    @rule(context=CONTEXT_IDS, text=st.sampled_from(["", " ", "...", "hi ", "123456789"]), is_answer_late=st.booleans())
    def send_text(self, context: str, text: str, is_answer_late: bool) -> None:
        self.is_answer_late = is_answer_late
        self.receive(wire.Text(context=context, text=text))

    @rule(context=CONTEXT_IDS)
    def send_flush(self, context: str) -> None:
        self.receive(wire.Flush(context=context))

    @rule(context=CONTEXT_IDS)
    def send_end(self, context: str) -> None:
        self.receive(wire.End(context=context))

    @rule(context=CONTEXT_IDS)
    def send_cancel(self, context: str) -> None:
        if context in self.heard:
            self.heard[context].sent_cancel = True
        self.receive(wire.Cancel(context=context))

    @rule(context=CONTEXT_IDS)
    def send_playback(self, context: str) -> None:
        self.receive(wire.Playback(context=context, played_ms=1))

    # --- what the engine does, within its contract --------------------------------------------------------

    def emit(self, event: engine.EngineEvent) -> None:
        self.now_s += 0.01
        self.perform(self.session.engine_event(event, self.now_s))

    @precondition(lambda self: self.waiting)
    @rule(data=st.data(), is_refused=st.booleans())
    def answer_late(self, data: st.DataObject, is_refused: bool) -> None:
        self.answer(data.draw(st.sampled_from(sorted(self.waiting))), is_refused=is_refused)

    @precondition(lambda self: self.engine)
    @rule(data=st.data(), kind=st.sampled_from(["audio", "alignment", "flushed"]))
    def emit_progress(self, data: st.DataObject, kind: str) -> None:
        utterance_id = data.draw(st.sampled_from(list(self.engine)))
        events: dict[str, engine.EngineEvent] = {
            "audio": engine.AudioReady(utterance_id, (b"x", b"y", b"z"), 0),
            "alignment": engine.Alignment(utterance_id, (), estimated=True),
        }
        if kind == "flushed" and self.engine[utterance_id].flush_ids:
            events["flushed"] = engine.Flushed(utterance_id, self.engine[utterance_id].flush_ids.pop(0), 0)
        if kind in events:
            self.emit(events[kind])

    @precondition(lambda self: self.engine)
    @rule(data=st.data(), num_late=st.sampled_from([0, 0, 1]))
    def emit_rest(self, data: st.DataObject, num_late: int) -> None:
        """`num_late`: so many characters were pushed while it was on its way."""
        utterance_id = data.draw(st.sampled_from(list(self.engine)))
        model = self.engine[utterance_id]
        was_at_rest = model.is_at_rest
        self.emit(engine.AtRest(utterance_id, model.num_chars - num_late))
        live = [context for context in self.session.contexts.values() if context.utterance_id == utterance_id]
        model.is_at_rest = any(context.is_at_rest for context in live)
        assert was_at_rest or not (model.is_at_rest and num_late)

    @precondition(lambda self: self.engine)
    @rule(data=st.data(), kind=st.sampled_from(["done", "cancelled", "failed"]))
    def emit_end(self, data: st.DataObject, kind: str) -> None:
        self.end_utterance(data.draw(st.sampled_from(list(self.engine))), kind)

    def end_utterance(self, utterance_id: UtteranceId, kind: str) -> None:
        model = self.engine[utterance_id]
        events: dict[str, engine.EndEvent] = {"failed": engine.Failed(utterance_id, "x")}
        if model.is_ended:
            events["done"] = engine.Done(utterance_id, 0, 0, 0)
        if model.is_cancelled:
            events["cancelled"] = engine.Cancelled(utterance_id, 0, 0, "", "")
        if kind in events:
            del self.engine[utterance_id]
            self.emit(events[kind])

    # --- and the world ------------------------------------------------------------------------------------

    @precondition(lambda self: self.heard)  # an idle socket would close, and the run be over
    @rule(really=st.integers(0, 4))
    def drain(self, really: int) -> None:
        if really == 0:
            self.perform(self.session.drain(1000))

    @precondition(lambda self: self.session.next_send_s is not None)
    @rule()
    def send_what_is_due(self) -> None:
        due_s = self.session.next_send_s
        assert due_s is not None
        self.now_s = max(self.now_s, due_s)
        before = self.session.next_send_s
        self.perform(self.session.on_send_due(self.now_s))
        after = self.session.next_send_s
        assert after is None or after > before, "what is due is sent"

    @rule()
    def wait_for_long(self) -> None:
        self.now_s += IDLE_S
        self.perform(self.session.on_deadline(self.now_s))

    @invariant()
    def what_is_held_is_what_there_is(self) -> None:
        contexts = self.session.contexts.values()
        assert self.quotas.held(NOBODY, Holding.CONTEXT) == len(contexts)
        assert self.quotas.held(NOBODY, Holding.UTTERANCE) == sum(
            c.asked_s is not None and not c.is_at_rest for c in contexts
        )

    @invariant()
    def contexts_are_those_that_the_client_knows(self) -> None:
        assert set(self.session.contexts) == set(self.heard)
        assert self.num_opened - self.num_ended == len(self.heard) <= 2

    def teardown(self) -> None:
        """The engine ends all that runs, as it promises; what never spoke has its time. Then nothing is open."""
        for utterance_id, model in list(self.engine.items()):
            self.end_utterance(utterance_id, "cancelled" if model.is_cancelled else "failed")
        for utterance_id in list(self.waiting):
            self.answer(utterance_id, is_refused=True)
        while self.session.next_send_s is not None:
            self.send_what_is_due()
        self.wait_for_long()
        assert not self.waiting
        assert self.num_opened == self.num_ended
        assert not self.heard


TestSessionMachine = SessionMachine.TestCase
TestSessionMachine.settings = settings(max_examples=60, stateful_step_count=40)
