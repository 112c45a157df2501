"""A voice's time for sentences: they are spoken by the speech LLM alone, and their tokens counted."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

from voicegate.engine.config import EngineConfig
from voicegate.engine.core.clause_feed import max_letters
from voicegate.engine.core.prompting import PassPrompt, voice_prompt
from voicegate.engine.interface import EngineError
from voicegate.engine.llm.backend import LlmBackend, SequenceRequest
from voicegate.engine.load.build import configured_voices, readable, set_threads
from voicegate.engine.load.devices import open_device, resolved_for_device
from voicegate.engine.load.family import load_tokenizer
from voicegate.engine.load.llm import load_llm
from voicegate.engine.load.progress import SILENT
from voicegate.engine.load.startup import ModelStart
from voicegate.engine.model.model_json import load_model_config
from voicegate.engine.text.normalize import SpanReader
from voicegate.engine.text.segmenter import TextSpan
from voicegate.engine.text.spoken_length import spoken_letters
from voicegate.engine.text.tokenizer import TextTokenizer
from voicegate.engine.voices.pace import Said


@dataclass(frozen=True, slots=True)
class Sentence:
    text_ids: tuple[int, ...]
    num_letters: int


@dataclass(frozen=True, slots=True)
class Heard:
    said: list[Said]
    num_cut_off: int  # sentences that ran on to a length limit, or came to nothing: they tell no pace


def measure_pace(
    config: EngineConfig,
    voice_name: str,
    texts: Sequence[str],
    *,
    num_seeds: int,
    on_said: Callable[[int, int], None],
) -> Heard:
    """Every text as often as there are seeds. `on_said` is told how many of how many are done.

    Raises EngineError for a model or a voice that is not there, and for texts that are no sentence.
    """
    set_threads(config)
    config = resolved_for_device(config)
    with readable(config):
        model = load_model_config(config.model_dir)
        voices = configured_voices(config, model)
        if voice_name not in voices:
            raise EngineError(f"{config.model_dir} has no voice {voice_name!r}; it has {', '.join(voices)}")
        voice = voices[voice_name]
        tokenizer = load_tokenizer(config.model_dir, model)
        prompt = voice_prompt(voice, tokenizer, instruct_prefix=model.instruct_prefix)
        reader = SpanReader(voice.language(model.languages) or model.languages[0], tags=tokenizer.tags)
        sentences = [_read(text, reader, tokenizer, max_letters(config.max_clause_tokens)) for text in texts]
        device = open_device(config)
        start = ModelStart(device.device, SILENT)
        llm = load_llm(config, model, device, num_prompt_tokens=voice.num_tokens, start=start)
    with closing(llm):
        start.finish()
        said, num_done = [], 0
        for sentence, num_tokens in _speak(llm, prompt, sentences * num_seeds, config.max_clause_tokens):
            if num_tokens:
                said.append(Said(sentence.num_letters, num_tokens))
            num_done += 1
            on_said(num_done, len(sentences) * num_seeds)
    return Heard(said, num_done - len(said))


def _read(text: str, reader: SpanReader, tokenizer: TextTokenizer, most_letters: int) -> Sentence:
    words = reader.read(TextSpan(text, 0, len(text)))
    num_letters = spoken_letters(words)
    if not num_letters:
        raise EngineError(f"there is nothing to say in {text[:60]!r}")
    if num_letters > most_letters:
        raise EngineError(f"no sentence is that long ({num_letters} letters, {most_letters} fit): {text[:60]!r}...")
    return Sentence(tokenizer.encode_spoken(words + reader.end_of(words, text)), num_letters)


def _speak(
    llm: LlmBackend, prompt: PassPrompt, sentences: Sequence[Sentence], max_tokens: int
) -> Iterator[tuple[Sentence, int]]:
    """Each with its speech tokens, as they end, as many at a time as there are slots; 0: it was cut off.

    Raises EngineError where the LLM fails one.
    """
    waiting, said, num_tokens = list(enumerate(sentences)), dict[int, Sentence](), dict[int, int]()
    while waiting or said:
        while waiting and llm.num_free_slots:
            number, sentence = waiting.pop()
            before, text_ids = prompt.before(sentence.text_ids, is_streaming=False)
            llm.add(SequenceRequest(number, before, text_ids, seed=number, max_tokens=max_tokens))
            said[number], num_tokens[number] = sentence, 0
        runnable = [number for number in said if llm.is_runnable(number)] if llm.takes_step else []
        if runnable:
            llm.launch(runnable)
        else:
            llm.wait()
        for output in llm.poll():
            if output.error is not None:
                raise EngineError(f"the speech LLM cannot say a sentence: {output.error}")
            num_tokens[output.sequence_id] += len(output.tokens)
            if output.is_final:
                is_whole = not output.is_truncated
                yield said.pop(output.sequence_id), num_tokens[output.sequence_id] if is_whole else 0
