"""What the commands say, and how they fail: results on stdout, all else on stderr, errors in one line."""

import sys


class CommandError(Exception):
    """The command cannot be carried out; the message is one line that says what to do."""


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def note(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
