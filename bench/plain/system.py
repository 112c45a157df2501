"""The plain way on the same weights, as the reference runtimes of CosyVoice 3 do it: the yardstick of the ratios.

One utterance at a time; the LLM decodes eagerly, one token a step (bench/plain/llm.py); for every
chunk the flow runs over prompt and all tokens so far, and the vocoder over all mel so far. Schedule: upstream's
CosyVoice3Model.tts (cosyvoice/cli/model.py), with the hop kept per utterance. Kinder to it than upstream: no thread,
no 100 ms poll, no encoding; LLM and flow run by turns, so `audio_s_per_s_overlapped` says what a perfect overlap of
the two would give.
"""

import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import torch

from voicegate.bench.plain.llm import TransformersLlm
from voicegate.clients.bench.stats import summary
from voicegate.engine import units
from voicegate.engine.core.clause_feed import ClauseFeed
from voicegate.engine.core.prompting import voice_prompt
from voicegate.engine.flow.backend import FlowPrompt
from voicegate.engine.flow.model import FlowModel
from voicegate.engine.flow.prompt import load_prompt
from voicegate.engine.flow.torch.offline import render_offline
from voicegate.engine.interface import SpeakingMode
from voicegate.engine.llm.silent_filter import SilentTokenFilter
from voicegate.engine.load.devices import choose_device
from voicegate.engine.model.model_json import load_model_config
from voicegate.engine.model.weights import load_state_dict
from voicegate.engine.text.tokenizer import TextTokenizer
from voicegate.engine.vocoder.model import VocoderModel
from voicegate.engine.vocoder.torch.offline import OfflineVocoder
from voicegate.engine.voices.store import load_voices
from voicegate.engine.voices.voice import Voice

_FIRST_HOP_TOKENS: Final = 25
_MAX_HOP_TOKENS: Final = 100


@dataclass(frozen=True, slots=True)
class Chunk:
    """One call of flow and vocoder: over so many of the tokens; mel before `start` is known already."""

    start: int  # tokens
    num_tokens: int
    is_final: bool


def chunks(num_tokens: int, num_prompt_tokens: int, lookahead_tokens: int) -> Iterator[Chunk]:
    """Upstream's schedule for an utterance of that many tokens: hops of 25, 50, 100, 100, ..., the first padded so
    that it ends on a block border counted from the prompt's start; what is left at the end goes in one last call."""
    start, hop = 0, _FIRST_HOP_TOKENS
    pad = -num_prompt_tokens % _FIRST_HOP_TOKENS
    while start + hop + pad + lookahead_tokens <= num_tokens:
        yield Chunk(start, start + hop + pad + lookahead_tokens, is_final=False)
        start, pad = start + hop + pad, 0
        hop = min(2 * hop, _MAX_HOP_TOKENS)
    yield Chunk(start, num_tokens, is_final=True)


@dataclass(slots=True)
class Spoken:
    """Wall time of one utterance, in seconds."""

    first_audio_s: float | None = None
    total_s: float = 0.0
    num_samples: int = 0
    stages_s: dict[str, float] = field(default_factory=lambda: {"llm": 0.0, "flow": 0.0, "vocoder": 0.0})

    @property
    def audio_s(self) -> float:
        return self.num_samples / units.SAMPLE_RATE_HZ


class PlainSpeaker:
    """Loads the models of a directory; nothing else should be on the device."""

    def __init__(self, model_dir: Path, *, device: str, dtype: torch.dtype, max_clause_tokens: int) -> None:
        """Raises what loading raises: ValueError, OSError, EngineError."""
        self._model_dir = model_dir
        self._device = choose_device(device)
        self._dtype = dtype
        self._model = load_model_config(model_dir)
        self._voices = load_voices(model_dir, self._model)
        self._max_clause_tokens = max_clause_tokens
        self._tokenizer = TextTokenizer.from_file(
            model_dir / "tokenizer.json", end_of_prompt_id=self._model.llm.end_of_prompt_id
        )
        self._flow = FlowModel(
            self._model.cosyvoice3_flow,
            load_state_dict(model_dir / "flow.safetensors"),
            device=self._device,
            dtype=dtype,
        )
        self._prompts = {
            name: load_prompt(self._flow, FlowPrompt(voice.speech_tokens, voice.mel, voice.embedding))
            for name, voice in self._voices.items()
        }
        # Upstream's vocoder is float32 whatever the rest is.
        vocoder = VocoderModel(
            self._model.vocoder,
            load_state_dict(model_dir / "vocoder.safetensors"),
            max_samples=max_clause_tokens * units.SAMPLES_PER_TOKEN,
            device=self._device,
        )
        self._vocoder = OfflineVocoder(vocoder)

    def load_llm(self) -> TransformersLlm:
        """Raises WeightsError, and ImportError where transformers is not installed."""
        state_dict = load_state_dict(self._model_dir / "llm.safetensors")
        return TransformersLlm(self._model, state_dict, device=self._device, dtype=self._dtype)

    def speak(
        self, llm: TransformersLlm, text: str, voice_name: str, *, seed: int, only_first_audio: bool = False
    ) -> Spoken:
        """The whole text, clause by clause as the engine cuts it, unless `only_first_audio`.

        Raises RuntimeError where the LLM fails.
        """
        feed = ClauseFeed(
            0,
            SpeakingMode.CLAUSE,
            self._tokenizer,
            language=self._model.languages[0],
            max_clause_tokens=self._max_clause_tokens,
        )
        feed.push(text)
        feed.end()
        feed.read_all()
        spoken = Spoken()
        started_s = time.perf_counter()
        texts = [clause.text_ids for clause in feed.clauses if clause.text_ids]
        with closing(self._utter(llm, texts, self._voices[voice_name], seed, spoken)) as sizes:
            for num_samples in sizes:
                spoken.num_samples += num_samples
                if spoken.first_audio_s is None and num_samples:
                    spoken.first_audio_s = time.perf_counter() - started_s
                    if only_first_audio:
                        break
        spoken.total_s = time.perf_counter() - started_s
        return spoken

    def _utter(
        self, llm: TransformersLlm, texts: Iterable[Sequence[int]], voice: Voice, seed: int, spoken: Spoken
    ) -> Generator[int, None, None]:
        """Samples of each chunk, once it is on the host."""
        prompt = voice_prompt(voice, self._tokenizer, instruct_prefix=self._model.instruct_prefix)
        for index, text_ids in enumerate(texts):
            llm_prompt, ids = prompt.before(text_ids, is_streaming=False)
            with closing(llm.speech(llm_prompt, ids, seed=seed + index, max_tokens=self._max_clause_tokens)) as speech:
                decoding = _Decoding(speech, SilentTokenFilter(self._model.silent_tokens, self._model.max_silent_run))
                yield from self._render_clause(decoding, voice, spoken)

    def _render_clause(self, decoding: "_Decoding", voice: Voice, spoken: Spoken) -> Iterator[int]:
        mel = torch.zeros(units.NUM_MELS, 0, device=self._device)
        num_emitted = 0
        for chunk in self._chunks(decoding, voice.num_tokens, spoken):
            if not chunk.num_tokens:
                continue
            tokens = decoding.tokens[: chunk.num_tokens]
            with _timed(spoken, "flow", self._device):
                rendered = render_offline(
                    self._flow,
                    self._prompts[voice.name],
                    tokens,
                    streaming=not chunk.is_final,
                    is_final=chunk.is_final,
                )
                mel = torch.cat((mel, rendered[:, chunk.start * units.FRAMES_PER_TOKEN :]), dim=1)
            with _timed(spoken, "vocoder", self._device):
                samples = self._vocoder.render(mel, is_final=chunk.is_final)[num_emitted:].cpu()
            num_emitted += len(samples)
            yield len(samples)

    def _chunks(self, decoding: "_Decoding", num_prompt_tokens: int, spoken: Spoken) -> Iterator[Chunk]:
        """Decodes on until the next chunk is certain: one more token could not change it."""
        lookahead_tokens = self._model.cosyvoice3_flow.lookahead_tokens
        position = 0
        while True:
            planned = list(chunks(len(decoding.tokens), num_prompt_tokens, lookahead_tokens))
            if not planned[position].is_final:
                yield planned[position]
                position += 1
            elif decoding.is_ended:
                yield planned[position]
                return
            else:
                with _timed(spoken, "llm", self._device):
                    decoding.step()


class _Decoding:
    """One LLM pass, a token a step, behind the filter of silences."""

    def __init__(self, speech: Iterator[int], silent_filter: SilentTokenFilter) -> None:
        self.tokens: list[int] = []
        self.is_ended = False
        self._speech = speech
        self._silent_filter = silent_filter

    def step(self) -> None:
        token = next(self._speech, None)
        if token is None:
            self.is_ended = True
        else:
            self.tokens += self._silent_filter.keep((token,))


@contextmanager
def _timed(spoken: Spoken, stage: str, device: torch.device) -> Iterator[None]:
    """Adds the wall time of its block to a stage, the device's work included."""
    started_s = time.perf_counter()
    yield
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    spoken.stages_s[stage] += time.perf_counter() - started_s


def measure(
    speaker: PlainSpeaker, llm: TransformersLlm, short_texts: Sequence[str], texts: Sequence[str], voices: Sequence[str]
) -> dict[str, Any]:
    """First audio over the short texts, throughput over the others.

    Unmeasured before: the shortest of them, and each one's beginning. Without the latter one in five took 0.7 s more
    on an H200: other lengths may take kernels that CUDA has yet to load.
    """
    speaker.speak(llm, min(short_texts, key=len), voices[0], seed=0)
    for i, text in enumerate(short_texts):
        speaker.speak(llm, text, voices[i % len(voices)], seed=i, only_first_audio=True)
    short = [
        speaker.speak(llm, text, voices[i % len(voices)], seed=i, only_first_audio=True)
        for i, text in enumerate(short_texts)
    ]
    long = [speaker.speak(llm, text, voices[i % len(voices)], seed=100 + i) for i, text in enumerate(texts)]
    audio_s, total_s = sum(each.audio_s for each in long), sum(each.total_s for each in long)
    stages_s = {stage: sum(each.stages_s[stage] for each in long) for stage in ("llm", "flow", "vocoder")}
    overlapped_s = max(stages_s["llm"], stages_s["flow"] + stages_s["vocoder"])
    return {
        **llm.describe(),
        "first_audio_ms": summary([each.first_audio_s * 1000 for each in short if each.first_audio_s is not None]),
        "rtf": summary([each.total_s / each.audio_s for each in long], digits=4),
        "audio_s": round(audio_s, 2),
        "audio_s_per_s": round(audio_s / total_s, 3),
        "audio_s_per_s_overlapped": round(audio_s / overlapped_s, 3),
        "rtf_by_stage": {stage: round(seconds / audio_s, 4) for stage, seconds in stages_s.items()},
    }
