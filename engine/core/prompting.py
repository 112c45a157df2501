"""The prompt before the text of an LLM pass: from the voice and, where there is one, the instruction. Pure.

zero-shot       the voice's transcript and speech tokens: the pass goes on where the prompt audio ended
cross-lingual   a voice without transcript: its sound comes from the flow alone, the LLM is told nothing of it.
                So for prompt audio of another language, and for a fixed voice, which has no prompt audio at all
instruct        an instruction in place of all that the LLM is told of the voice (upstream's instruct2)

The flow keeps its own prompt, and so the voice its timbre, in all three.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from voicegate.engine.llm.backend import LlmPrompt
from voicegate.engine.text.tokenizer import END_OF_PROMPT, TextTokenizer
from voicegate.engine.voices.voice import Voice

# Room for a sentence or two. Lower -> instructions have to be terse; higher -> they crowd the text out of the LLM's
# slot (build leaves 512 positions for both, and a character of a rare script can take three).
MAX_INSTRUCT_CHARS: Final = 200


class PromptError(ValueError):
    """A voice's prompt text, or a model's instruct_prefix, is not one. The message names it."""


@dataclass(frozen=True, slots=True)
class PassPrompt:
    """Before the text of every pass of an utterance."""

    llm: LlmPrompt
    # Upstream's cross-lingual callers write the prefix at the head of the text, so that unistream's length limits
    # count it. In bistream everything up to <|endofprompt|> is fed first, and belongs to the prompt.
    is_head_of_text: bool = False

    def before(self, text_ids: Sequence[int], *, is_streaming: bool) -> tuple[LlmPrompt, tuple[int, ...]]:
        """The prompt and the text of one pass."""
        if self.is_head_of_text and not is_streaming and text_ids:
            return LlmPrompt(), (*self.llm.text_ids, *text_ids)
        return self.llm, tuple(text_ids)


def voice_prompt(voice: Voice, tokenizer: TextTokenizer, *, instruct_prefix: str) -> PassPrompt:
    """Zero-shot, or cross-lingual where the voice has no transcript.

    Raises PromptError where one of prefix and voice has <|endofprompt|> and the other has not.
    """
    prompt_text = voice.prompt_text or instruct_prefix
    has_mark = END_OF_PROMPT in prompt_text
    if has_mark is not (END_OF_PROMPT in instruct_prefix):
        fault = f"has {END_OF_PROMPT}, which this model's have not" if has_mark else f"lacks {END_OF_PROMPT}"
        raise PromptError(f"the prompt text of voice {voice.name!r} {fault}: {prompt_text[:80]!r}")
    text_ids = tokenizer.encode_prompt(prompt_text)
    if not voice.transcript:
        return PassPrompt(LlmPrompt(text_ids), is_head_of_text=True)
    return PassPrompt(LlmPrompt(text_ids, tuple(voice.speech_tokens.tolist())))


def instruct_prompt(instruct: str, tokenizer: TextTokenizer, *, instruct_prefix: str) -> PassPrompt:
    """The instruction after the model's prefix, where it has one. Whatever looks like a control word is letters."""
    head, mark, rest = instruct_prefix.partition(END_OF_PROMPT)
    if head and not mark:
        raise PromptError(f"instruct_prefix of the model lacks {END_OF_PROMPT}: {instruct_prefix[:80]!r}")
    # The blank goes with the word after it, as byte-level BPE has it.
    instruction = tokenizer.encode(f" {instruct.strip()}" if head else instruct.strip())
    end = tokenizer.encode_prompt(END_OF_PROMPT + rest)
    return PassPrompt(LlmPrompt(tokenizer.encode_prompt(head) + instruction + end))
