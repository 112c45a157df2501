"""Fields of a settings class as the outside sees them: names of variables and flags, and text -> value.

ConfigError   a variable or flag is unknown or its value is not possible; the message names it and the remedy
"""

import dataclasses
import difflib
import re
from dataclasses import dataclass
from math import inf
from types import UnionType
from typing import Any, Final, Literal, TypeVar, get_args, get_origin

PREFIX: Final = "VOICEGATE_"
_BOOLEANS: Final = {"true": True, "false": False}

# Kubernetes: Services, "Environment variables"; Docker's links before them.
_SERVICE_LINK: Final = re.compile(
    PREFIX + r"(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
_SERVICE_PORT: Final = re.compile(r"(tcp|udp|sctp)://\S+")

T = TypeVar("T")


class ConfigError(ValueError):
    pass


@dataclass(frozen=True, slots=True)
class ConfigField:
    """One setting as the outside sees it."""

    name: str
    default: Any
    value_type: type  # str, int, float, bool or Path
    is_optional: bool  # whether "" or unset means None
    choices: tuple[str, ...]
    help: str
    at_least: float | None
    at_most: float | None
    is_secret: bool  # it is shown nowhere, and has no flag: other users of the machine see those

    @property
    def env(self) -> str:
        return PREFIX + self.name.upper()

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def choices_text(self) -> str:
        return ", ".join(self.choices)


def setting(
    default: T, help: str, *, at_least: float | None = None, at_most: float | None = None, is_secret: bool = False
) -> T:
    """A field of a settings class. Both limits are in the range."""
    said = {"help": help, "at_least": at_least, "at_most": at_most, "is_secret": is_secret}
    return dataclasses.field(default=default, repr=not is_secret, metadata=said)


def describe(item: "dataclasses.Field[Any]", hint: Any) -> ConfigField:
    """Describes a field that `setting` made."""
    if get_origin(hint) is Literal:
        value_type, is_optional, choices = str, False, get_args(hint)
    elif isinstance(hint, UnionType):
        value_type, is_optional, choices = get_args(hint)[0], True, ()
    else:
        value_type, is_optional, choices = hint, False, tuple(_BOOLEANS) if hint is bool else ()
    return ConfigField(item.name, item.default, value_type, is_optional, choices, **item.metadata)


def check(config_field: ConfigField, value: Any) -> None:
    """Raises ConfigError for one out of its range, or that is no choice."""
    name, least, most = config_field.name, config_field.at_least, config_field.at_most
    choices = (True, False) if config_field.value_type is bool else config_field.choices
    if choices and value not in choices:
        raise ConfigError(f"{name} is {value!r}; it must be one of {config_field.choices_text}")
    if least is None or value is None:
        return
    if not least <= value <= (inf if most is None else most):
        also = "" if most is None else f" and at most {most}"
        raise ConfigError(f"{name} is {value}; it must be at least {least}{also}")


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


def is_service_link(variable: str, text: str) -> bool:
    """Whether an orchestrator has set it, for a service of our name."""
    if variable.endswith("_PORT") and _SERVICE_PORT.fullmatch(text):
        return True
    return _SERVICE_LINK.fullmatch(variable) is not None


def unknown(name: str, known: list[str]) -> str:
    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
    return f"{name} is no setting of voicegate; did you mean {nearest[0]}?"
