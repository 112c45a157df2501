"""Every promise of engine/interface.py, once, against every engine of conftest.ENGINES."""

import itertools

import numpy as np
import pytest

from tests.contract.conftest import Case
from tests.contract.listener import Listener
from tests.support.golden import TINY_MODEL_DIR
from tests.support.polling import until
from tests.support.word_times import words_in_time
from voicegate.engine import units
from voicegate.engine.audio.opus import load_opuslib
from voicegate.engine.dictionary import Dictionary
from voicegate.engine.interface import (
    Alignment,
    AtRest,
    AudioFormat,
    AudioReady,
    BadRequest,
    Cancelled,
    Codec,
    Done,
    Engine,
    EngineStopped,
    Failed,
    Flushed,
    ListenerReport,
    NewVoice,
    Overloaded,
    SpeakingMode,
    UnknownVoice,
    Unsupported,
    UtteranceId,
    UtteranceRequest,
    VoiceConflict,
    VoiceRefused,
)

PCM = AudioFormat(codec=Codec.PCM_S16LE)


async def started(engine: Engine, case: Case) -> Listener:
    await engine.start()
    return Listener(engine, timeout_s=case.timeout_s)


@pytest.fixture
async def listener(case: Case) -> Listener:
    return await started(case.engine, case)


# --- life of the engine -----------------------------------------------------------------------------------


async def test_is_not_running_before_start(case: Case) -> None:
    with pytest.raises(EngineStopped):
        _ = case.engine.info
    assert case.engine.unready_reason
    assert case.engine.pulse is None
    with pytest.raises(EngineStopped):
        case.engine.submit(UtteranceRequest(UtteranceId("u"), "any"))


async def test_info_is_complete(listener: Listener) -> None:
    info = listener.engine.info
    assert info.model
    assert info.default_voice in [voice.name for voice in info.voices]
    assert SpeakingMode.AUTO in info.modes
    assert min(info.pre_skip_48k, info.max_utterances, info.max_lead_ms) > 0
    assert listener.engine.unready_reason is None


async def test_close_fails_what_runs_and_ends_the_events(listener: Listener) -> None:
    utterances = [listener.submit("a"), listener.submit("b", text="and then ")]
    await listener.engine.close()
    with pytest.raises(EngineStopped):
        await listener.until_end(UtteranceId("never"))
    assert all(isinstance(listener.end_of(utterance), Failed) for utterance in utterances)
    with pytest.raises(EngineStopped):
        await listener.engine.next_event()
    with pytest.raises(EngineStopped):
        listener.engine.submit(UtteranceRequest(UtteranceId("u"), "any"))
    listener.engine.push_text(utterances[0], "x")
    listener.engine.cancel(utterances[0])  # a socket that ends last still cancels
    await listener.engine.close()  # twice is once
    assert listener.engine.unready_reason


async def test_a_language_that_it_does_not_speak_is_refused(listener: Listener) -> None:
    info = listener.engine.info
    for language, refusal in (("qx-XX", Unsupported), ("no tag", BadRequest)):
        with pytest.raises(refusal):
            listener.engine.submit(UtteranceRequest(UtteranceId("u"), info.default_voice, language=language))
    assert isinstance(await listener.until_end(listener.submit("u", end=True, language=info.languages[0])), Done)


async def test_words_of_a_dictionary_are_told_as_they_are_written(listener: Listener) -> None:
    dictionary = Dictionary({"two": "number two", "one two": "one and two"})
    utterance = listener.submit("u", text="One two three. ", end=True, audio=PCM, dictionaries=(dictionary,))
    assert isinstance(await listener.until_end(utterance), Done)
    told = words_in_time(listener.events[utterance])
    text = "One two three. "
    assert all(text[item.char_start : item.char_end] == item.text for item in told)
    assert "".join(item.text for item in told).replace(" ", "") == "Onetwothree."


# --- audio ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("frame_ms", [20, 40, 60])
async def test_opus_decodes_to_the_length_that_done_names(listener: Listener, case: Case, frame_ms: int) -> None:
    utterance = listener.submit("u", text=case.text, end=True, audio=AudioFormat(frame_ms=frame_ms))
    done = await listener.until_end(utterance)
    assert isinstance(done, Done)
    decoder = load_opuslib().Decoder(units.OPUS_CLOCK_HZ, 1)
    size = frame_ms * units.OPUS_CLOCK_HZ // 1000
    decoded = [np.frombuffer(decoder.decode_float(p, size), np.float32) for p in listener.packets(utterance)]
    assert all(len(samples) == size for samples in decoded)
    num_samples_48k = done.end_pts_48k - listener.engine.info.pre_skip_48k
    assert num_samples_48k * 1000 // units.OPUS_CLOCK_HZ == done.audio_ms > 0
    assert 0 <= sum(map(len, decoded)) - done.end_pts_48k <= 2 * size


async def test_pcm_is_as_long_as_done_says(listener: Listener, case: Case) -> None:
    utterance = listener.submit("u", text=case.text, end=True, audio=PCM)
    done = await listener.until_end(utterance)
    assert isinstance(done, Done)
    packets = listener.packets(utterance)
    num_samples = sum(map(len, packets)) // 2
    assert num_samples * units.OPUS_CLOCK_PER_SAMPLE == done.end_pts_48k
    assert units.samples_to_ms(num_samples) == done.audio_ms > 0
    assert {len(packet) for packet in packets[:-1]} <= {units.ms_to_samples(PCM.frame_ms) * 2}


@pytest.mark.parametrize("text", ["", " ", " \n\t ", "\u00a0\u2003"])
async def test_nothing_to_say_is_done_without_sound(listener: Listener, text: str) -> None:
    utterance = listener.submit("u", text=text, end=True)
    done = await listener.until_end(utterance)
    assert isinstance(done, Done)
    assert (done.audio_ms, done.num_packets) == (0, 0)


@pytest.mark.parametrize("text", ["...", "?!,", "😀", "👩\u200d👩\u200d👧", "\x00\x07", "<|endoftext|>", "x" * 20])
async def test_odd_text_ends_in_done(listener: Listener, text: str) -> None:
    assert isinstance(await listener.until_end(listener.submit("u", text=text, end=True)), Done)


async def test_text_may_come_in_any_parts(listener: Listener, case: Case) -> None:
    utterance = listener.submit("u")
    for character in case.text:
        listener.engine.push_text(utterance, character)
    listener.engine.push_text(utterance, "")
    listener.engine.end_text(utterance)
    done = await listener.until_end(utterance)
    assert isinstance(done, Done)
    assert done.audio_ms > 0


async def test_more_text_than_an_utterance_takes_ends_it_and_says_how_much_that_is(listener: Listener) -> None:
    limit = listener.engine.info.max_text_chars
    full, other = listener.submit("full"), listener.submit("other", end=True)
    listener.engine.push_text(full, "." * limit)
    listener.engine.push_text(full, ".")
    listener.engine.push_text(full, "." * limit)
    failed = await listener.until_end(full)
    assert isinstance(failed, Failed)
    assert str(limit) in failed.message
    assert isinstance(await listener.until_end(other), Done)


async def test_alignment_moves_forward_within_the_text(listener: Listener, case: Case) -> None:
    utterance = listener.submit("u", text=case.text, end=True)
    await listener.until_end(utterance)
    items = [i for event in listener.events[utterance] if isinstance(event, Alignment) for i in event.items]
    assert all(item.char_end <= len(case.text) for item in items)
    for before, after in itertools.pairwise(items):
        assert before.end_ms <= after.start_ms
        assert before.char_end <= after.char_start


async def test_alignment_is_of_whole_words_without_blanks(listener: Listener, case: Case) -> None:
    """A client that puts words together takes blanks from the text, and cannot learn to rely on one engine's."""
    utterance = listener.submit("u", text=case.text, end=True)
    await listener.until_end(utterance)
    items = [i for event in listener.events[utterance] if isinstance(event, Alignment) for i in event.items]
    assert [item.text for item in items] == case.text.split()
    assert [case.text[item.char_start : item.char_end] for item in items] == case.text.split()


async def test_timing_is_in_order_where_it_is_known(listener: Listener, case: Case) -> None:
    done = await listener.until_end(listener.submit("u", text=case.text, end=True))
    assert isinstance(done, Done)
    timing = done.timing
    known = [timing.queue_ms, timing.llm_first_token_ms, timing.first_chunk_ms, timing.first_packet_ms]
    stamps = [stamp for stamp in known if stamp is not None]
    assert stamps == sorted(stamps)
    assert all(stamp >= 0 for stamp in stamps)


# --- listeners --------------------------------------------------------------------------------------------


async def test_a_listener_who_does_not_play_is_given_its_lead_and_no_more_until_it_plays(
    listener: Listener, case: Case
) -> None:
    utterance = listener.submit("u", lead_ms=400)
    listener.engine.note_listener(utterance, ListenerReport(is_playing=False))
    listener.engine.push_text(utterance, case.text * 5)
    listener.engine.end_text(utterance)
    while len(listener.packets(utterance)) * 20 < 400:
        await listener.until(utterance, AudioReady)
    num_packets = 0
    while num_packets != len(listener.packets(utterance)):  # the block that was begun may be on its way
        num_packets = len(listener.packets(utterance))
        assert num_packets * 20 <= 400 + 1500, "and the block that was begun"
        await listener.until_quiet()
    assert listener.end_of(utterance) is None
    listener.engine.note_listener(utterance, ListenerReport())
    await listener.until(utterance, AudioReady)
    listener.engine.cancel(utterance)
    await listener.until_end(utterance)


async def test_reports_of_a_listener_change_nothing_of_what_is_said(listener: Listener, case: Case) -> None:
    plain = listener.submit("plain", text=case.text, end=True, mode=SpeakingMode.CLAUSE)
    before = await listener.until_end(plain)
    steered = listener.submit("steered", text=case.text, mode=SpeakingMode.CLAUSE)
    for report in (ListenerReport(0), ListenerReport(is_playing=False), ListenerReport(20, num_underruns=3)):
        listener.engine.note_listener(steered, report)
    listener.engine.end_text(steered)
    after = await listener.until_end(steered)
    assert isinstance(before, Done)
    assert isinstance(after, Done)
    if listener.engine.info.is_reproducible:
        assert (after.audio_ms, after.num_packets) == (before.audio_ms, before.num_packets)
    listener.engine.note_listener(steered, ListenerReport(is_playing=False))  # it has ended


# --- flush ------------------------------------------------------------------------------------------------


async def test_flush_speaks_what_is_buffered_and_goes_on(listener: Listener, case: Case) -> None:
    utterance = listener.submit("u", text="hello")
    listener.engine.flush_text(utterance, "first")
    flushed = await listener.until(utterance, Flushed)
    assert flushed.flush_id == "first"
    assert flushed.audio_ms > 0
    assert listener.packets(utterance)
    listener.engine.push_text(utterance, case.text)
    listener.engine.end_text(utterance)
    done = await listener.until_end(utterance)
    assert isinstance(done, Done)
    assert done.audio_ms > flushed.audio_ms


async def test_flushes_are_answered_in_order_and_before_done(listener: Listener) -> None:
    utterance = listener.submit("u")
    for text, flush_id in (("", "empty"), ("one", "1"), ("", "again"), ("two ", "2")):
        listener.engine.push_text(utterance, text)
        listener.engine.flush_text(utterance, flush_id)
    listener.engine.end_text(utterance)
    await listener.until_end(utterance)
    answers = [event for event in listener.events[utterance] if isinstance(event, Flushed)]
    assert [answer.flush_id for answer in answers] == ["empty", "1", "again", "2"]
    assert [answer.audio_ms for answer in answers] == sorted(answer.audio_ms for answer in answers)


# --- stalls and instructions ------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [SpeakingMode.CLAUSE, SpeakingMode.BISTREAM])
async def test_a_writer_who_pauses_is_spoken_without_a_flush(listener: Listener, mode: SpeakingMode) -> None:
    if mode not in listener.engine.info.modes:
        with pytest.raises(Unsupported, match=mode.value):
            listener.submit("u", mode=mode)
        return
    utterance = listener.submit("u", text="hello there ", mode=mode)
    await listener.until(utterance, AudioReady)
    listener.engine.end_text(utterance)
    done = await listener.until_end(utterance)
    assert isinstance(done, Done)
    assert done.audio_ms > 0


async def test_an_instruction_is_followed_or_refused(listener: Listener) -> None:
    max_chars = listener.engine.info.max_instruct_chars
    if max_chars:
        assert isinstance(await listener.until_end(listener.submit("u", end=True, instruct="Whisper.")), Done)
        for instruct in ("x" * (max_chars + 1), "<|endofprompt|>"):
            with pytest.raises(BadRequest, match="instruct"):
                listener.submit("v", instruct=instruct)
    else:
        with pytest.raises(Unsupported, match="instructions"):
            listener.submit("u", instruct="Whisper.")
    await listener.until_quiet()


async def test_a_seed_is_taken_or_refused(listener: Listener) -> None:
    engine = listener.engine
    request = UtteranceRequest(UtteranceId("seeded"), engine.info.default_voice, seed=7)
    if engine.info.is_reproducible:
        engine.submit(request)
        engine.cancel(request.utterance_id)
    else:
        with pytest.raises(Unsupported, match="seed"):
            engine.submit(request)


# --- cancel -----------------------------------------------------------------------------------------------


async def test_cancel_before_any_text(listener: Listener) -> None:
    utterance = listener.submit("u")
    listener.engine.cancel(utterance)
    cancelled = await listener.until_end(utterance)
    assert isinstance(cancelled, Cancelled)
    assert (cancelled.audio_ms, cancelled.spoken_text, cancelled.remaining_text) == (0, "", "")


@pytest.mark.parametrize("played_ms", [None, 0, 100, 10**9])
async def test_cancel_in_mid_speech_splits_the_text(listener: Listener, case: Case, played_ms: int | None) -> None:
    text = case.text * 4
    utterance = listener.submit("u", text=text)
    await listener.until(utterance, AudioReady)
    listener.engine.cancel(utterance, played_ms)
    listener.engine.cancel(utterance, played_ms)
    cancelled = await listener.until_end(utterance)
    assert isinstance(cancelled, Cancelled)
    assert cancelled.spoken_text + cancelled.remaining_text == text
    if played_ms == 0:
        assert cancelled.spoken_text == ""
    await listener.until_quiet()


async def test_cancel_after_end_text_is_one_end(listener: Listener, case: Case) -> None:
    utterance = listener.submit("u", text=case.text, end=True)
    listener.engine.cancel(utterance)
    assert isinstance(await listener.until_end(utterance), Done | Cancelled)
    await listener.until_quiet()


async def test_calls_on_what_has_ended_or_never_was_are_nothing(listener: Listener) -> None:
    ended = listener.submit("u", end=True)
    await listener.until_end(ended)
    for utterance in (ended, UtteranceId("never")):
        listener.engine.readmit(utterance)
        listener.engine.push_text(utterance, "x ")
        listener.engine.flush_text(utterance, "f")
        listener.engine.end_text(utterance)
        listener.engine.cancel(utterance)
    await listener.until_quiet()


async def test_calls_after_cancel_are_nothing(listener: Listener) -> None:
    utterance = listener.submit("u", text="one two ")
    listener.engine.cancel(utterance)
    listener.engine.push_text(utterance, "three ")
    listener.engine.flush_text(utterance, "f")
    listener.engine.end_text(utterance)
    cancelled = await listener.until_end(utterance)
    assert isinstance(cancelled, Cancelled)
    assert cancelled.spoken_text + cancelled.remaining_text == "one two "
    await listener.until_quiet()


# --- refusals and neighbours ------------------------------------------------------------------------------


async def test_refused_requests_start_nothing(listener: Listener) -> None:
    with pytest.raises(UnknownVoice) as caught:
        listener.engine.submit(UtteranceRequest(UtteranceId("u"), "nobody"))
    assert all(voice.name in str(caught.value) for voice in listener.engine.info.voices)
    with pytest.raises(Unsupported, match="8000"):
        listener.submit("u", audio=AudioFormat(codec=Codec.PCM_S16LE, sample_rate_hz=8000))
    await listener.until_quiet()


async def test_who_has_said_all_holds_no_place_and_goes_on_where_it_was(case: Case) -> None:
    if case.small_engine is None:
        pytest.skip("this engine's room cannot be chosen")
    listener = await started(case.small_engine, case)
    engine, utterances = listener.engine, [listener.submit(name, text="hello") for name in ("a", "b")]
    for utterance in utterances:
        engine.flush_text(utterance, "f")
        rest = await listener.until(utterance, AtRest)
        assert rest.num_chars == len("hello")
    await until(lambda: engine.room > 0)
    speaking = listener.submit("c", text="one")
    num_refused = 0
    for utterance in utterances:
        try:
            engine.readmit(utterance)
        except Overloaded:
            num_refused += 1
    assert num_refused == 1, "one place is free"
    engine.cancel(speaking)
    await listener.until_end(speaking)
    for utterance in utterances:
        engine.readmit(utterance)
        engine.push_text(utterance, " there")
        engine.end_text(utterance)
        done = await listener.until_end(utterance)
        assert isinstance(done, Done)
        words = [
            item.text for event in listener.events[utterance] if isinstance(event, Alignment) for item in event.items
        ]
        assert "".join(words).replace(" ", "") == "hellothere"


async def test_text_takes_a_place_also_where_nobody_asked_for_one(case: Case) -> None:
    if case.small_engine is None:
        pytest.skip("this engine's room cannot be chosen")
    listener = await started(case.small_engine, case)
    engine, utterance = listener.engine, listener.submit("u", text="hello")
    engine.flush_text(utterance, "f")
    await listener.until(utterance, AtRest)
    await until(lambda: engine.room == 2)
    engine.push_text(utterance, " there")
    await until(lambda: engine.room == 1)
    engine.cancel(utterance)
    assert isinstance(await listener.until_end(utterance), Cancelled)
    await until(lambda: engine.room == 2)


async def test_text_that_crosses_the_word_of_rest_makes_it_void(listener: Listener) -> None:
    utterance = listener.submit("u", text="hello")
    listener.engine.flush_text(utterance, "f")
    await listener.until(utterance, Flushed)
    listener.engine.push_text(utterance, " there")
    listener.engine.flush_text(utterance, "again")
    rest = await listener.until(utterance, AtRest)
    while rest.num_chars < len("hello there"):
        rest = await listener.until(utterance, AtRest)
    listener.engine.end_text(utterance)
    assert isinstance(await listener.until_end(utterance), Done)


async def test_a_full_engine_refuses_and_has_room_again(case: Case) -> None:
    if case.small_engine is None:
        pytest.skip("this engine's room cannot be chosen")
    listener = await started(case.small_engine, case)
    assert listener.engine.info.max_utterances == 2
    first, second = listener.submit("a"), listener.submit("b")
    with pytest.raises(Overloaded) as caught:
        listener.submit("c")
    assert caught.value.retry_after_ms > 0
    listener.engine.cancel(first)
    await listener.until_end(first)
    await listener.until_end(listener.submit("d", end=True))
    listener.engine.end_text(second)
    assert isinstance(await listener.until_end(second), Done)


async def test_an_engine_says_how_much_room_there_is(case: Case) -> None:
    if case.small_engine is None:
        pytest.skip("the room of this engine cannot be chosen")
    assert case.small_engine.room == 0
    listener = await started(case.small_engine, case)
    engine = listener.engine
    for room in (2, 1):
        assert engine.room == room
        listener.submit(f"{room} left", text=case.text)
    assert engine.room == 0
    for utterance_id in (UtteranceId("2 left"), UtteranceId("1 left")):
        engine.cancel(utterance_id)
        await listener.until_end(utterance_id)
    await until(lambda: engine.room == 2)  # its thread hears of the cancel, and tells
    await engine.close()
    await until(lambda: engine.room == 0)


async def test_an_engine_that_can_serve_nobody_says_why_and_refuses(case: Case) -> None:
    if case.troubled_engine is None:
        pytest.skip("this engine cannot be brought into trouble")
    listener = await started(case.troubled_engine, case)
    assert listener.engine.unready_reason
    with pytest.raises(Overloaded, match=listener.engine.unready_reason) as caught:
        listener.submit("a")
    assert caught.value.retry_after_ms > 0
    await listener.engine.close()
    with pytest.raises(EngineStopped):
        await listener.next()


async def test_an_engine_with_nothing_to_do_has_no_pulse(listener: Listener, case: Case) -> None:
    for name in ("first", "second"):
        utterance = listener.submit(name, text=case.text, end=True)
        assert isinstance(await listener.until_end(utterance), Done)
        await until(lambda: listener.engine.pulse is None)


async def test_many_at_once_each_end_once(listener: Listener, case: Case) -> None:
    utterances = [listener.submit(f"u{n}", text=case.text, end=n % 2 == 0) for n in range(6)]
    await listener.until(utterances[0], AudioReady)
    for utterance in utterances[1::2]:
        listener.engine.cancel(utterance)
    ends = [await listener.until_end(utterance) for utterance in utterances]
    assert [type(end) for end in ends] == [Done, Cancelled] * 3


async def test_a_failure_never_touches_another(case: Case) -> None:
    if case.failing_engine is None:
        pytest.skip("this engine cannot be made to fail")
    listener = await started(case.failing_engine, case)
    failing = listener.submit("failing", text=case.text, end=True)
    other = listener.submit("other", text=case.text, end=True)
    assert isinstance(await listener.until_end(failing), Failed)
    done = await listener.until_end(other)
    assert isinstance(done, Done)
    assert done.audio_ms > 0


# --- voices that come and go ------------------------------------------------------------------------------

RECORDING = (TINY_MODEL_DIR / "voices" / "man_prompt.wav").read_bytes()
TRANSCRIPT = "Hello there, it is very nice to meet you."


def voice_names(engine: Engine) -> list[str]:
    return [voice.name for voice in engine.info.voices]


async def test_an_added_voice_speaks_and_can_be_taken_away_while_it_does(listener: Listener, case: Case) -> None:
    engine, before = listener.engine, voice_names(listener.engine)
    added = await engine.add_voice(NewVoice("guest", RECORDING, transcript=TRANSCRIPT, description="a guest"))
    assert (added.name, added.description) == ("guest", "a guest")
    assert voice_names(engine) == [*before, "guest"]
    utterance = listener.submit("u", text=case.text, voice="guest")
    await engine.remove_voice("guest")
    assert voice_names(engine) == before
    with pytest.raises(UnknownVoice, match="guest"):
        listener.submit("v", voice="guest")
    engine.end_text(utterance)
    done = await listener.until_end(utterance)
    assert isinstance(done, Done)
    assert done.audio_ms > 0


async def test_a_voice_is_overwritten_only_if_asked(listener: Listener) -> None:
    engine = listener.engine
    await engine.add_voice(NewVoice("guest", RECORDING, description="first"))
    with pytest.raises(VoiceConflict, match="there is a voice 'guest' already"):
        await engine.add_voice(NewVoice("guest", RECORDING, description="second"))
    await engine.add_voice(NewVoice("guest", RECORDING, description="third", is_replacing=True))
    assert [voice.description for voice in engine.info.voices if voice.name == "guest"] == ["third"]
    await engine.remove_voice("guest")
    await listener.until_end(listener.submit("u", text="One.", end=True))  # by then it is taken away


async def test_a_clone_speaks_for_who_knows_its_name_and_is_in_no_list(listener: Listener, case: Case) -> None:
    engine, before = listener.engine, voice_names(listener.engine)
    await engine.add_voice(NewVoice("clone-1", RECORDING, transcript=TRANSCRIPT, is_clone=True))
    assert (voice_names(engine), engine.info.clones) == (before, ("clone-1",))
    done = await listener.until_end(listener.submit("u", text=case.text, voice="clone-1", end=True))
    assert isinstance(done, Done)
    assert done.audio_ms > 0
    with pytest.raises(UnknownVoice) as caught:
        listener.submit("v", voice="clone-2")
    assert "clone-1" not in str(caught.value)
    with pytest.raises(VoiceConflict):
        await engine.add_voice(NewVoice("clone-1", RECORDING))
    await engine.remove_voice("clone-1")
    assert (voice_names(engine), engine.info.clones) == (before, ())
    with pytest.raises(UnknownVoice, match="clone-1"):
        listener.submit("w", voice="clone-1")
    await listener.until_end(listener.submit("x", text="One.", end=True))  # by then it is taken away


async def test_what_makes_no_voice_changes_nothing(listener: Listener) -> None:
    engine, before = listener.engine, listener.engine.info
    for name, recording in (("guest", b"<html>"), ("guest", b""), ("../guest", RECORDING), ("", RECORDING)):
        with pytest.raises(VoiceRefused):
            await engine.add_voice(NewVoice(name, recording))
    with pytest.raises(VoiceRefused, match="default voice"):
        await engine.remove_voice(before.default_voice)
    with pytest.raises(UnknownVoice, match="nobody"):
        await engine.remove_voice("nobody")
    assert engine.info.voices == before.voices


async def test_voices_need_a_running_engine(case: Case) -> None:
    with pytest.raises(EngineStopped):
        await case.engine.add_voice(NewVoice("guest", RECORDING))
    await case.engine.start()
    await case.engine.close()
    with pytest.raises(EngineStopped):
        await case.engine.add_voice(NewVoice("guest", RECORDING))
    with pytest.raises(EngineStopped):
        await case.engine.remove_voice("woman")
