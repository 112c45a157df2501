"""decode.c as a library of this machine: found beside the source or in the user's cache, or compiled into that.

`python -m voicegate.engine.llm.cpu.library FOLDER` compiles it into a folder: a container's build stage puts it beside
the source, so that the image needs no compiler. So only Python's own modules are imported here.
"""

import ctypes
import os
import platform
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).with_name("decode.c")
_FLAGS: Final = ("-O2", "-shared", "-fPIC", "-ffp-contract=off")
_MACHINES: Final = ("x86_64", "AMD64")
# It takes a second. Higher -> a compiler that hangs delays a start for longer; lower -> a busy machine does without.
_PATIENCE_S: Final = 20.0
_SHOWN_CHARS: Final = 200


class NoLibrary(Exception):
    """Its text says what is missing or wrong."""


def load_library() -> ctypes.CDLL:
    """The compiled source; at the first call of a user it is compiled. Raises NoLibrary."""
    if platform.machine() not in _MACHINES:
        raise NoLibrary(f"it is not written for {platform.machine()}")
    for path in _places():
        with suppress(OSError):  # missing, or unfit: of another C library, say
            return ctypes.CDLL(str(path))
    path = compile_into(_cache_folder())
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:  # a file system without rights to execute
        raise NoLibrary(f"the library cannot be loaded: {error}") from error


def compile_into(folder: Path) -> Path:
    """The library, compiled into `folder`, which is made if need be. Raises NoLibrary.

    It is there whole or not at all: several processes may do this at once, or be killed.
    """
    to = folder / _file_name()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as building:
            made = Path(building) / to.name
            _compile(made)
            made.replace(to)
    except OSError as error:
        raise NoLibrary(f"{folder} cannot be written to ({error.strerror or error})") from error
    return to


def _places() -> Iterator[Path]:
    """Where it may be already, the shipped one first."""
    yield SOURCE.with_name(_file_name())
    with suppress(NoLibrary):
        yield _cache_folder() / _file_name()


def _file_name() -> str:
    """Another one for each source, so that no library is taken for that of another version."""
    digest = sha256(SOURCE.read_bytes())
    digest.update("\0".join((*_FLAGS, sys.platform, platform.machine())).encode())
    return f"decode-{digest.hexdigest()[:16]}.so"


def _cache_folder() -> Path:
    """Raises NoLibrary for a user who has none."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    try:
        base = Path(named) if os.path.isabs(named) else Path.home() / ".cache"
    except RuntimeError as error:
        raise NoLibrary("this user has no home: set XDG_CACHE_HOME to a folder for what is compiled") from error
    return base / "voicegate"


def _compile(to: Path) -> None:
    """`to` lies in a folder for temporary files. Raises NoLibrary, OSError."""
    named = os.environ.get("CC") or "cc"
    told = to.with_suffix(".txt")  # no pipe, which an orphan of the compiler could hold open
    with told.open("wb") as output:
        try:
            process = subprocess.Popen(
                [*shlex.split(named), *_FLAGS, "-o", str(to), str(SOURCE)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "TMPDIR": str(to.parent), "LC_ALL": "C"},
                start_new_session=True,  # so that all that it has started can be ended
            )
        except (OSError, ValueError) as error:
            raise NoLibrary(f"no C compiler: {named!r} cannot be run ({error})") from error
        try:
            status = process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise NoLibrary(f"the C compiler {named!r} has not ended after {_PATIENCE_S:g} s") from None
    if status != 0:
        raise NoLibrary(f"the C compiler {named!r} failed ({status}): {_complaint(told)}")


def _complaint(told: Path) -> str:
    lines = told.read_text(errors="replace").splitlines()
    faults = [line for line in lines if "error" in line] or lines or ["it said nothing"]
    return faults[0][:_SHOWN_CHARS]


def main() -> int:
    if platform.machine() not in _MACHINES:
        print(f"decode.c is not written for {platform.machine()}: none is compiled", file=sys.stderr)  # noqa: T201
        return 0
    try:
        compile_into(Path(sys.argv[1]))
    except NoLibrary as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
