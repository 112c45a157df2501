"""Missing extras of a base install, told in one line by the command that needs them."""

from collections.abc import Iterator
from contextlib import contextmanager

from voicegate.gateway.cli.interrupts import interrupts_end_it
from voicegate.gateway.cli.terminal import CommandError
from voicegate.gateway.install_command import install_command


@contextmanager
def server_imports() -> Iterator[None]:
    """Around imports of what the extra `server` brings. Raises CommandError where it is not installed."""
    with extra_imports("server"):
        yield


@contextmanager
def extra_imports(extra: str) -> Iterator[None]:
    """Like `server_imports`, for another extra."""
    try:
        with interrupts_end_it():
            yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("voicegate"):  # a fault of ours
            raise
        raise CommandError(f"{error.name} is not installed, and this needs it: {install_command(extra)}") from error
