"""Builds the Dockerfile's stages where there is no container engine.

Each is a layer over those below it, and its commands run in a chroot of them, in namespaces of their own.

Linux, root, debootstrap. Debian with its own Python stands in for the images that the stages begin with. What is not in
this project's Dockerfile is not understood, and an error.
"""

import ast
import fnmatch
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from tests.support.dockerfile import ROOT, base, stages

_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_KINDS: Final = {"ENTRYPOINT": "entrypoint", "CMD": "command"}
_CERTIFICATES: Final = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")


@dataclass(frozen=True)
class Image:
    layers: tuple[Path, ...]  # the lowest first
    variables: Mapping[str, str] = field(default_factory=dict)
    user: str = "0"
    folder: str = "/"
    entrypoint: Sequence[str] = ()
    command: Sequence[str] = ()
    health: Sequence[str] = ()

    def find(self, path: str) -> Path:
        """Where the file, or folder, of this name lies."""
        return next(found for layer in reversed(self.layers) if (found := layer / path.lstrip("/")).exists())


class Builder:
    """`images` has what is built; who makes it puts there what FROM names outside the file."""

    def __init__(self, folder: Path) -> None:
        """`folder`: on no overlay, and of the builder alone."""
        self.images: dict[str, Image] = {}
        self._folder = folder
        self._num_runs = 0
        (folder / "cache").mkdir()
        self._context = folder / "context"
        _copy_context(self._context)
        self._lent_variables, self._lent_paths = lent()

    def build(self, name: str) -> Image:
        if name not in self.images:
            self.images[name] = self._build(name)
        return self.images[name]

    def ran(self, below: Image, *commands: str) -> Image:
        """Runs these commands. Returns their output."""
        made = self._on_top(below)
        for command in commands:
            self._run(made, command)
        return made

    def _on_top(self, below: Image) -> Image:
        layer = Path(tempfile.mkdtemp(prefix="layer-", dir=self._folder))
        layer.chmod(0o755)  # the root folder of all that stand on it
        return replace(below, layers=(*below.layers, layer))

    def _build(self, name: str) -> Image:
        built = self._on_top(self.build(base(name)))
        layer = built.layers[-1]
        for line in stages()[name][1:]:
            kind, _, rest = line.partition(" ")
            match kind:
                case "RUN":
                    self._run(built, rest)
                case "COPY":
                    self._copy(built, rest)
                case "ENV":
                    pairs = (word.split("=", 1) for word in shlex.split(rest))
                    built = replace(built, variables={**built.variables, **dict(pairs)})
                case "WORKDIR":
                    (layer / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)
                    built = replace(built, folder=rest)
                case "USER":
                    built = replace(built, user=rest)
                case "ENTRYPOINT" | "CMD":
                    built = replace(built, **{_KINDS[kind]: json.loads(rest)})
                case "HEALTHCHECK":
                    built = replace(built, health=json.loads(rest.partition(" CMD ")[2]))
                case "EXPOSE" | "ARG":  # no argument is given
                    pass
                case _:
                    raise NotImplementedError(line)
        return built

    def _copy(self, into: Image, rest: str) -> None:
        *sources, target = rest.split()
        found = [self._context / source for source in sources]
        if sources[0].startswith("--from="):
            found = [self.build(sources[0].removeprefix("--from=")).find(source) for source in sources[1:]]
        where = into.layers[-1] / into.folder.lstrip("/") / target
        if target.startswith("/"):
            where = into.layers[-1] / target.lstrip("/")
        for source in found:
            if source.is_dir():
                shutil.copytree(source, where, symlinks=True, dirs_exist_ok=True)
            elif target.endswith("/"):
                where.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, where)
            else:
                where.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, where)

    def _run(self, image: Image, rest: str) -> None:
        mounts: dict[str, Path] = {}
        while rest.startswith("--mount="):
            option, _, rest = rest.partition(" ")
            wanted = dict(word.split("=", 1) for word in option.removeprefix("--mount=").split(","))
            mounts[wanted["target"]] = (
                self._folder / "cache"
                if wanted["type"] == "cache"
                else self.build(wanted["from"]).find(wanted["source"])
            )
        command = self.inside(image, ["sh", "-c", rest], layer=image.layers[-1], mounts=mounts, is_build=True)
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        if done.returncode:
            raise AssertionError(f"RUN {rest}\nended with {done.returncode}: {done.stdout[-4000:]}")

    def inside(
        self,
        image: Image,
        arguments: Sequence[str],
        *,
        layer: Path | None = None,
        mounts: Mapping[str, Path] | None = None,
        is_build: bool = False,
        **variables: str,
    ) -> list[str]:
        """The command that runs `arguments` there, as its user; what they write goes to `layer`, by default a new one.

        They are process 1 of their own, as in a container, and end with the command. The network is this machine's.
        """
        self._num_runs += 1
        folder = self._folder / f"run-{self._num_runs}"
        over = layer or folder / "layer"
        for each in (folder / "work", folder / "root", over):
            each.mkdir(parents=True, exist_ok=True)
        lower = ":".join(str(each) for each in reversed(image.layers) if each != over)
        root = str(folder / "root")
        told = {"PATH": _PATH, "HOME": _home(image), **image.variables}
        bound = {"/dev": Path("/dev"), **(mounts or {})}
        if is_build:
            told |= self._lent_variables
            bound |= {str(path): path for path in self._lent_paths}
        told |= variables
        user = f"--userspec={image.user}:{image.user}"
        chroot = ("exec", "chroot", user, "--groups=", root, "/usr/bin/env", "-i", "-C", image.folder)
        lines = [
            f"mount -t overlay overlay -o lowerdir={lower},upperdir={over},workdir={folder / 'work'} {root}",
            f"mount -t proc proc {root}/proc",
            *(_bound(source, root + target) for target, source in bound.items()),
            shlex.join([*chroot, *(f"{name}={value}" for name, value in told.items()), *arguments]),
        ]
        return ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-euc", "\n".join(lines)]


def debian(folder: Path, *packages: str) -> Image:
    """A small system with these and their like alone, of this machine's release and from its mirror."""
    release = dict(re.findall(r"^(\w+)=\"?([^\"\n]*)", Path("/etc/os-release").read_text(), re.MULTILINE))
    uris = [
        word
        for path in sorted(Path("/etc/apt").glob("sources.list.d/*.sources"))
        for line in path.read_text().splitlines()
        if line.startswith("URIs:")
        for word in line.split()[1:]
        if word.rstrip("/").endswith("/debian")
    ]
    command = ["debootstrap", "--variant=minbase", f"--include={','.join(packages)}", release["VERSION_CODENAME"]]
    subprocess.run([*command, str(folder), *uris[:1]], stdout=subprocess.DEVNULL, check=True)
    return Image((folder,))


def _home(image: Image) -> str:
    lines = [line.split(":") for line in image.find("/etc/passwd").read_text().splitlines()]
    return next((home for _, _, user, _, _, home, _ in lines if user == image.user), "/")


def _bound(source: Path, target: str) -> str:
    make = f"mkdir -p {target}" if source.is_dir() else f"mkdir -p {Path(target).parent} && touch {target}"
    return f"{make} && mount --bind {source} {target}"


def lent() -> tuple[dict[str, str], list[Path]]:
    """How this machine reaches its registries: variables, and the files that they name."""
    variables = {name: os.environ[name] for name in _CERTIFICATES if name in os.environ}
    told = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True)
    for line in told.stdout.splitlines():
        name, _, value = line.partition("=")
        variables["PIP_" + name.rpartition(".")[2].upper().replace("-", "_")] = str(ast.literal_eval(value))
    words = [word for value in variables.values() for word in value.split()]
    # An index of files names others beside it.
    named = [Path(word.removeprefix("file://")).parent if word.startswith("file://") else Path(word) for word in words]
    named += [Path("/etc/resolv.conf"), Path("/etc/hosts")]
    return variables, [path for path in dict.fromkeys(named) if path.is_absolute() and path.exists()]


def _copy_context(folder: Path) -> None:
    """Copies the files that a builder would be sent: those of the repository, but for .dockerignore's."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    rules = (ROOT / ".dockerignore").read_text().split()
    for name in filter(None, listed.split("\0")):
        if _is_ignored(name, rules):
            continue
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, target, follow_symlinks=False)


def _is_ignored(name: str, rules: Sequence[str]) -> bool:
    """The last rule that is about it, or about a folder above it, counts."""
    parts = name.split("/")
    above = ["/".join(parts[:number]) for number in range(1, len(parts) + 1)]
    told = [rule for rule in rules if any(_is_about(rule.removeprefix("!"), each) for each in above)]
    return bool(told) and not told[-1].startswith("!")


def _is_about(rule: str, path: str) -> bool:
    if rule.startswith("**/"):
        return fnmatch.fnmatchcase(path.rpartition("/")[2], rule.removeprefix("**/"))
    here, there = rule.split("/"), path.split("/")
    return len(here) == len(there) and all(map(fnmatch.fnmatchcase, there, here))
