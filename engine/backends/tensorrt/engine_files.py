"""TensorRT engines on disk: a file for each, and a manifest that says what they were built of and for. No TensorRT.

An engine does for one model, one version of TensorRT and one kind of GPU. A file appears whole or not at all, and is
taken for whole where it is what the manifest has its hash of. Each part of a model has its own engines there.
"""

import fcntl
import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final

from voicegate.engine.whole_file import write_whole

_MANIFEST: Final = "manifest.json"
REBUILD: Final = "run `voicegate build`"


class EngineFilesError(Exception):
    """There are no engines, or not those that are wanted; the message says which, and what to do."""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Everything that engines depend on."""

    graph: str  # how they compute, as the code counts it
    model: str  # hash of the weights and their configuration
    precision: str
    tensorrt: str  # version
    gpu: str

    def differences(self, built: "Fingerprint") -> list[str]:
        """Where engines that were `built` so do not do for this."""
        pairs = ((field.name, getattr(built, field.name), getattr(self, field.name)) for field in fields(self))
        return [f"{name} {_short(then)} then, {_short(now)} now" for name, then, now in pairs if then != now]


@dataclass(frozen=True, slots=True)
class _Part:
    fingerprint: Fingerprint
    engines: dict[str, str]  # name -> sha256 of its file


class EngineFiles:
    """Those of one part."""

    def __init__(self, directory: Path, part: str) -> None:
        """`part`: of a model, such as vocoder."""
        self.directory = directory
        self._part_name = part

    def are_there(self) -> bool:
        """Whatever they are worth."""
        try:
            return self._part_name in self._manifest()
        except EngineFilesError:
            return True  # of a manifest that says nothing

    def check(self, names: Sequence[str], wanted: Fingerprint) -> None:
        """Without reading them. Raises EngineFilesError."""
        known = self._part()
        differences = wanted.differences(known.fingerprint)
        if differences:
            raise EngineFilesError(f"the engines in {self.directory} are stale ({'; '.join(differences)}): {REBUILD}")
        missing = [name for name in names if name not in known.engines]
        if missing:
            raise EngineFilesError(f"{self.directory} lacks {len(missing)} engines, such as {missing[0]}: {REBUILD}")

    def read(self, name: str) -> bytes:
        """One that `check` found. Raises EngineFilesError."""
        path = self._path(name)
        try:
            plan = path.read_bytes()
        except OSError as error:
            raise EngineFilesError(f"{path} cannot be read ({error.strerror}): {REBUILD}") from error
        if hashlib.sha256(plan).hexdigest() != self._part().engines.get(name):
            raise EngineFilesError(f"{path} is torn, or not what was built: {REBUILD}")
        return plan

    def is_whole(self, name: str, wanted: Fingerprint) -> bool:
        """Whether there is nothing to build."""
        try:
            self.check([name], wanted)
            self.read(name)
        except EngineFilesError:
            return False
        return True

    def keep(self, name: str, plan: Any, fingerprint: Fingerprint) -> int:
        """Its bytes. `plan`: something with a buffer. The part's engines of another fingerprint are given up."""
        try:
            manifest = self._manifest()
        except EngineFilesError:
            manifest = {}
        known = manifest.get(self._part_name)
        engines: dict[str, str] = {}
        if known is not None and known.fingerprint == fingerprint:
            engines = known.engines
        elif known is not None:
            del manifest[self._part_name]
            self._write(manifest)
            for old in known.engines:
                self._path(old).unlink(missing_ok=True)
        view = memoryview(plan)
        write_whole(self._path(name), view)
        engines[name] = hashlib.sha256(view).hexdigest()
        self._write(manifest | {self._part_name: _Part(fingerprint, engines)})
        return view.nbytes

    @contextmanager
    def being_built(self) -> Iterator[None]:
        """By this process alone. Raises EngineFilesError, OSError."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with (self.directory / ".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise EngineFilesError(f"another process builds in {self.directory}: wait for its end") from None
            yield

    def _part(self) -> _Part:
        known = self._manifest().get(self._part_name)
        if known is None:
            raise EngineFilesError(f"no engines of the {self._part_name} in {self.directory}: {REBUILD}")
        return known

    def _manifest(self) -> dict[str, _Part]:
        """Manifests of all parts; of none, where there is no file."""
        path = self.directory / _MANIFEST
        try:
            parts = json.loads(path.read_bytes()).items()
            return {
                str(part): _Part(
                    Fingerprint(**found["fingerprint"]),
                    {str(name): str(digest) for name, digest in found["engines"].items()},
                )
                for part, found in parts
            }
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise EngineFilesError(f"{path} cannot be read: {error.strerror}") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise EngineFilesError(f"{path} is torn, or of another version: {REBUILD}") from error

    def _write(self, manifest: dict[str, _Part]) -> None:
        described = {part: asdict(found) for part, found in manifest.items()}
        write_whole(self.directory / _MANIFEST, json.dumps(described, indent=1).encode())

    def _path(self, name: str) -> Path:
        return self.directory / f"{name}.engine"


def _short(value: str) -> str:
    """Hashes are long."""
    return value if len(value) < 64 else value[:12]
