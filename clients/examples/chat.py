"""Any server with OpenAI's /chat/completions (vLLM, llama.cpp, Ollama, SGLang, ...), read as it writes."""

import os
import urllib.request
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError

import orjson

Message = dict[str, str]


class LlmError(Exception):
    """The LLM's server did not answer as expected; the message says what it did."""


@dataclass(frozen=True, slots=True)
class Llm:
    """Any server with OpenAI's /chat/completions."""

    base_url: str
    model: str
    api_key: str = ""
    timeout_s: float = 60.0

    def answer(self, messages: Sequence[Message]) -> Iterator[str]:
        """Blocking: the pieces of the answer to a conversation, as they come. Raises LlmError."""
        body = {"model": self.model, "stream": True, "messages": list(messages)}
        headers = {"Content-Type": "application/json", "Accept": "text/event-stream"}
        if self.api_key:
            headers["Authorization"] = f"Bearer {self.api_key}"
        request = urllib.request.Request(f"{self.base_url}/chat/completions", orjson.dumps(body), headers)
        try:
            with urllib.request.urlopen(request, timeout=self.timeout_s) as response:
                yield from content_of(response)
        except HTTPError as error:
            with error:
                reason = error.read().decode(errors="replace")[:300]
            raise LlmError(f"{error.url} answered HTTP {error.code}: {reason}") from error
        except (URLError, OSError, HTTPException) as error:
            raise LlmError(f"{self.base_url}: {getattr(error, 'reason', error)}") from error


def content_of(lines: Iterable[bytes]) -> Iterator[str]:
    """The text in a stream of server-sent events. Raises LlmError, also where it breaks off."""
    is_whole = False
    for line in lines:
        if not line.startswith(b"data:"):
            continue  # comments, other fields, the blank line between events
        data = line.removeprefix(b"data:").strip()
        if data == b"[DONE]":
            return
        try:
            event: dict[str, Any] = orjson.loads(data)
            if "error" in event:
                raise LlmError(f"the LLM failed: {event['error']}")
            choices = event["choices"]
            content = choices[0]["delta"].get("content") if choices else None
            is_whole = is_whole or any(choice.get("finish_reason") for choice in choices)
        except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
            raise LlmError(f"not a completion chunk: {data[:200]!r}") from error
        if content:
            yield content
    if not is_whole:
        raise LlmError("the LLM's answer broke off")


def llm_of_environment() -> Llm:
    """By the variables that OpenAI's own clients read."""
    return Llm(
        base_url=os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1").rstrip("/"),
        model=os.environ.get("OPENAI_MODEL", "gpt-4o-mini"),
        api_key=os.environ.get("OPENAI_API_KEY", ""),
    )
