"""Findings: a result of a check of `voicegate doctor`, and what to do about it."""

from dataclasses import dataclass
from enum import Enum


class Level(Enum):
    OK = "ok"
    WARN = "warn"  # the gateway runs, something beside it does not
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    level: Level
    subject: str
    text: str
