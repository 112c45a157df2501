"""Fields of a settings class as the outside sees them: names of variables and flags, and text -> value.

ConfigError   a variable or flag is unknown or its value is not possible; the message names it and the remedy
"""

import dataclasses
import difflib
from dataclasses import dataclass
from types import UnionType
from typing import Any, Final, Literal, get_args, get_origin

PREFIX: Final = "VOICEGATE_"
_BOOLEANS: Final = {"true": True, "false": False}


class ConfigError(ValueError):
    pass


@dataclass(frozen=True, slots=True)
class ConfigField:
    """One setting as the outside sees it."""

    name: str
    help: str
    default: Any
    value_type: type  # str, int, float, bool or Path
    is_optional: bool  # whether "" or unset means None
    choices: tuple[str, ...]
    is_secret: bool = False  # it is shown nowhere, and has no flag: other users of the machine see those

    @property
    def env(self) -> str:
        return PREFIX + self.name.upper()

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def choices_text(self) -> str:
        return ", ".join(self.choices)


def describe(item: "dataclasses.Field[Any]", hint: Any) -> ConfigField:
    """Of a field of a dataclass, whose metadata hold its help text."""
    if get_origin(hint) is Literal:
        value_type, is_optional, choices = str, False, get_args(hint)
    elif isinstance(hint, UnionType):
        value_type, is_optional, choices = get_args(hint)[0], True, ()
    else:
        value_type, is_optional, choices = hint, False, tuple(_BOOLEANS) if hint is bool else ()
    is_secret = item.metadata.get("secret", False)
    return ConfigField(item.name, item.metadata["help"], item.default, value_type, is_optional, choices, is_secret)


def parse(config_field: ConfigField, text: str, *, source: str) -> Any:
    """Raises ConfigError, which names `source`."""
    if config_field.is_optional and not text:
        return None
    if config_field.choices and text not in config_field.choices:
        raise ConfigError(f"{source} is {text!r}; it must be one of {config_field.choices_text}")
    if config_field.value_type is bool:
        return _BOOLEANS[text]
    try:
        return config_field.value_type(text)
    except ValueError as error:
        kind = "a whole number" if config_field.value_type is int else "a number"
        raise ConfigError(f"{source} is {text!r}; it must be {kind}") from error


def unknown(name: str, known: list[str]) -> str:
    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
    return f"{name} is no setting of voicegate; did you mean {nearest[0]}?"
