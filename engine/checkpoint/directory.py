"""A directory of files written so that it is there complete or not at all, and a run that was killed can go on.

Work happens in `NAME.partial`, which is renamed at the end. Its `conversion.json` says of every finished file what it
was made from and its hash: a rerun keeps what still holds. The last file is what makes the directory loadable.
"""

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from voicegate.engine.checkpoint.conversion import CheckpointError, Progress
from voicegate.engine.checkpoint.storage import Advance, Written, hash_file, write_bytes
from voicegate.engine.figures import told_apart
from voicegate.engine.model.model_json import JOURNAL_FILE, PARTIAL_SUFFIX
from voicegate.engine.whole_file import UNFINISHED_SUFFIX, write_whole

_FORMAT: Final = 1
# For what a file system needs beside the data. Lower -> a full disk is found only while writing.
_SPARE_BYTES: Final = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Item:
    """One file. `recipe` is plain data: everything that its content depends on."""

    name: str
    recipe: Mapping[str, Any]
    num_bytes: int
    write: Callable[[Path, Advance], Written]
    takes_space: bool = True  # False for a hard link
    is_users: bool = False  # once it is there: who changes or deletes it does what he may


def bytes_item(name: str, content: bytes) -> Item:
    """A small file whose content is known: its hash is its recipe."""
    recipe = {"sha256": hashlib.sha256(content).hexdigest()}
    return Item(name, recipe, len(content), lambda path, _: write_bytes(path, content))


class Journal:
    """Finished files of a directory."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / JOURNAL_FILE
        self._files: dict[str, dict[str, Any]] = {}
        try:
            content = json.loads(self._path.read_bytes())
            if content["format"] == _FORMAT:
                self._files = dict(content["files"])
        except (OSError, ValueError, KeyError, TypeError):
            pass  # nothing is known to be finished

    def matches(self, item: Item) -> bool:
        """Whether the file was finished from the same recipe; its content is not looked at."""
        entry = self._files.get(item.name)
        return entry is not None and bool(entry["recipe"] == _fingerprint(item))

    def verify(self, item: Item, advance: Advance) -> bool:
        """Whether the file is still what was written. Reads all of it."""
        entry = self._files[item.name]
        path = self._path.parent / item.name
        if not path.is_file() or path.stat().st_size != entry["bytes"]:
            return False
        return bool(hash_file(path, advance).sha256 == entry["sha256"])

    def record(self, item: Item, written: Written) -> None:
        self._files[item.name] = {
            "recipe": _fingerprint(item),
            "bytes": written.num_bytes,
            "sha256": written.sha256,
        }
        self._save()

    def forget_others(self, items: Sequence[Item]) -> None:
        """Delete files of an earlier run that this one does not make."""
        for name in set(self._files) - {item.name for item in items}:
            (self._path.parent / name).unlink(missing_ok=True)
            del self._files[name]
        self._save()

    def _save(self) -> None:
        content = {"format": _FORMAT, "files": self._files}
        write_whole(self._path, json.dumps(content, indent=1).encode() + b"\n")


def write_directory(target: Path, items: Sequence[Item], progress: Progress) -> None:
    """Raises CheckpointError where `target` holds something else, or a file cannot be written.

    `target` is a path without symbolic links, as `check_place` takes it.
    """
    if _holds_something(target):
        _check_finished(target, items, progress)
        return
    partial = partial_of(target)
    with _written_by_us_alone(partial):
        if _holds_something(target):  # the other has ended since
            partial.rmdir()
            raise _busy(partial)
        _write_all(partial, items, progress)
        if target.exists():
            target.rmdir()  # empty, as was seen above
        partial.rename(target)


def _write_all(partial: Path, items: Sequence[Item], progress: Progress) -> None:
    *others, last = items
    for cut_off in partial.rglob(f"*{UNFINISHED_SUFFIX}"):  # left by a process that had no time to clean up
        cut_off.unlink()
    (partial / last.name).unlink(missing_ok=True)  # nothing may look complete while files before it change
    journal = Journal(partial)
    journal.forget_others(items)
    for item in [*others, last]:
        _make(partial, journal, item, progress)


@contextmanager
def _written_by_us_alone(partial: Path) -> Iterator[None]:
    """Raises CheckpointError where another process writes there."""
    partial.mkdir(parents=True, exist_ok=True)
    try:
        directory = os.open(partial, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:  # the other has just renamed it
        raise _busy(partial) from None
    try:
        try:
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _busy(partial) from None
        except OSError:
            pass  # a file system without locks on directories, as NFS: then nobody is kept out
        if not partial.exists() or not os.path.samestat(os.fstat(directory), partial.stat()):
            raise _busy(partial)  # it was renamed before we had it
        yield
    finally:
        os.close(directory)


def _busy(partial: Path) -> CheckpointError:
    return CheckpointError(f"another `voicegate convert` is at work in {partial}: wait for its end, and run this again")


def check_place(target: Path) -> None:
    """Before anything is read. Raises CheckpointError where `write_directory` could not end."""
    if not target.name:
        raise CheckpointError(f"{target} is no place for a model: name a directory in it")
    if os.path.ismount(target) and not _holds_something(target):
        raise CheckpointError(
            f"{target} is a mount point, which the finished directory cannot take the place of: name a directory in "
            f"it, such as {target / 'model'}"
        )


def partial_of(target: Path) -> Path:
    """Where it is made: beside it, and so on the disk that it will be on."""
    return target.with_name(target.name + PARTIAL_SUFFIX)


def _holds_something(target: Path) -> bool:
    return target.exists() and (not target.is_dir() or any(target.iterdir()))


def check_space(plans: Mapping[Path, Sequence[Item]]) -> None:
    """Room for all that is still to be written, directory by directory. Raises CheckpointError."""
    needed: dict[int, int] = {}  # by disk
    for target, items in plans.items():
        journals = [Journal(place) for place in (target, partial_of(target))]
        disk = disk_of(target)
        needed[disk] = needed.get(disk, _SPARE_BYTES) + sum(
            item.num_bytes
            for item in items
            if item.takes_space and not any(journal.matches(item) for journal in journals)
        )
        free = shutil.disk_usage(_existing(partial_of(target))).free
        if free < needed[disk]:
            has, needs = told_apart(free / 1e9, needed[disk] / 1e9, decimals=2)
            raise CheckpointError(
                f"{target} needs {needs} GB and its disk has {has} GB free: make room or choose another place"
            )


def _make(partial: Path, journal: Journal, item: Item, progress: Progress) -> None:
    progress.begin(item.name, item.num_bytes)
    if journal.matches(item) and journal.verify(item, progress.advance):
        progress.finish("was done, verified")
        return
    path = partial / item.name
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        written = item.write(path, progress.advance)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be written: {error.strerror or error}") from error
    journal.record(item, written)
    progress.finish(f"{written.num_bytes / 1e6:.1f} MB")


def _check_finished(target: Path, items: Sequence[Item], progress: Progress) -> None:
    remedy = "choose another directory, or delete it (voices/ may hold some of your own)"
    if not (target / JOURNAL_FILE).is_file():
        raise CheckpointError(f"{target} is there and was not made by `voicegate convert`: {remedy}")
    journal = Journal(target)
    others = [item.name for item in items if not item.is_users and not journal.matches(item)]
    if others:
        raise CheckpointError(
            f"{target} was made from other files or with other options ({', '.join(others)}): {remedy}"
        )
    for item in items:
        if item.is_users:
            continue
        progress.begin(item.name, item.num_bytes)
        if not journal.verify(item, progress.advance):
            raise CheckpointError(
                f"{target / item.name} is missing or damaged: convert into another directory, or delete {target} "
                "(voices/ may hold some of your own) and convert again"
            )
        progress.finish("was done, verified")


def disk_of(target: Path) -> int:
    """The device number of the disk that `target` is written to."""
    return _existing(partial_of(target)).stat().st_dev


def _existing(path: Path) -> Path:
    return path if path.exists() else _existing(path.parent)


def _fingerprint(item: Item) -> Any:
    """The recipe as it comes back from JSON."""
    return json.loads(json.dumps(item.recipe))
