"""NAME=VALUE settings that an LLM backend alone knows (`llm_options`), read by its names."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from voicegate.engine.config import EngineConfig
from voicegate.engine.interface import EngineError

Reader = Callable[[str], Any]  # raises ValueError that says what it must be

FLAGS: Final = {"true": True, "false": False}


def one_of(choices: Mapping[str, Any]) -> Reader:
    def read(text: str) -> Any:
        if text not in choices:
            raise ValueError(" or ".join(choices))
        return choices[text]

    return read


def whole_number(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise ValueError("a whole number from 1 on")
    return int(text)


def read_options(config: EngineConfig, known: Mapping[str, tuple[str, Reader]]) -> dict[str, Any]:
    """`known`: by an option's name the field that it sets, and its reader. Raises EngineError with what there is."""
    values = {}
    for option in config.llm_options:
        name, equals, text = option.partition("=")
        if not equals or name not in known:
            raise EngineError(
                f"llm_options has {option!r}; --llm-backend {config.llm_backend} has {', '.join(sorted(known))}"
            )
        field, read = known[name]
        try:
            values[field] = read(text)
        except ValueError as error:
            raise EngineError(f"llm_options: {name} is {text!r}; it must be {error}") from error
    return values
