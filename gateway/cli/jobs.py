"""`voicegate jobs`: texts that a running gateway speaks when it has time, and the files that it makes of them."""

import argparse
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from voicegate.gateway.cli.gateway_http import NoAnswer, add_access, default_url, pieces
from voicegate.gateway.cli.terminal import Bar, CommandError, note, replacing, say
from voicegate.gateway.config import from_environment

_PATH: Final = "/v1/audio/jobs"
# A text is cut while its request waits: some seconds for a book, 20 for the longest of nothing but brackets.
_TIMEOUT_S: Final = 120.0
_POLL_S: Final = 1.0
_FORMATS: Final = ("mp3", "opus", "aac", "flac", "wav", "pcm")


class _Job(msgspec.Struct):
    id: str
    state: str
    characters: int
    characters_done: int
    seconds: float
    error: str | None = None
    ended_at: int | None = None


class _Deleted(msgspec.Struct):
    deleted: bool = False


class _Listing(msgspec.Struct):
    jobs: list[_Job]


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "jobs",
        help="have long texts spoken that no listener waits for",
        description="Jobs of a running gateway that has --jobs-dir.",
        allow_abbrev=False,
    )
    actions = parser.add_subparsers(metavar="action", dest="action", required=True)
    add = actions.add_parser("add", help="add a text; prints the job's id")
    add.add_argument("file", metavar="FILE", help="in UTF-8; - is stdin")
    add.add_argument("--voice", help="name of a voice (default: the model's)")
    add.add_argument("--format", choices=_FORMATS, default="mp3", help="of the audio (default: mp3)")
    add.add_argument("--speed", type=float, default=1.0, help="0.5 to 2 (default: 1)")
    add.add_argument("--seed", type=int, help="makes the same speech again (default: another every time)")
    add.add_argument("--language", metavar="TAG", help="of the text, such as en-GB")
    add.add_argument("--webhook", metavar="URL", help="that is told of the end; the gateway's operator has to allow it")
    listing = actions.add_parser("list", help="list your jobs, the newest first")
    show = actions.add_parser("show", help="how a job stands")
    wait = actions.add_parser("wait", help="wait until a job has ended, with a progress bar")
    cancel = actions.add_parser("cancel", help="cancel a job; of one that has ended, delete the audio")
    get = actions.add_parser("get", help="fetch the audio of a job that is done")
    get.add_argument("-o", "--output", type=Path, metavar="FILE", required=True, help="the file to write")
    for action in (show, wait, cancel, get):
        action.add_argument("id", metavar="ID")
    runs = {add: _add, listing: _list, show: _show, wait: _wait, cancel: _cancel, get: _get}
    for action, run in runs.items():
        action.add_argument("--url", help="of the gateway (default: the one on the default port)")
        add_access(action)
        action.set_defaults(run=run)


def _add(options: argparse.Namespace) -> int:
    try:
        raw = sys.stdin.buffer.read() if options.file == "-" else Path(options.file).read_bytes()
        text = raw.decode("utf-8-sig")
    except OSError as error:
        raise CommandError(f"{options.file} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise CommandError(f"{options.file} is not UTF-8 ({error.reason} at byte {error.start})") from error
    fields = {
        "input": text,
        "voice": options.voice,
        "response_format": options.format,
        "speed": options.speed,
        "seed": options.seed,
        "language": options.language,
        "webhook": options.webhook,
    }
    body = msgspec.json.encode({name: value for name, value in fields.items() if value is not None})
    say(msgspec.json.decode(_ask(options, "POST", "", body), type=_Job).id)
    return 0


def _list(options: argparse.Namespace) -> int:
    for job in msgspec.json.decode(_ask(options, "GET", ""), type=_Listing).jobs:
        say(_line(job))
    return 0


def _show(options: argparse.Namespace) -> int:
    say(_line(_job(options)))
    return 0


def _wait(options: argparse.Namespace) -> int:
    """Once it was found, a job is waited for while its gateway is away, too: it goes on after the next start."""
    bar, job, is_away = Bar(), _job(options), False
    while job.ended_at is None:
        bar.draw(job.state, job.characters_done / job.characters)
        time.sleep(_POLL_S)
        try:
            job, is_away = _job(options), False
        except NoAnswer as error:
            if not is_away:
                bar.clear()
                note(f"{error} It is asked again until it answers.")
            is_away = True
    bar.clear()
    say(_line(job))
    return 0 if job.state == "done" else 1


def _cancel(options: argparse.Namespace) -> int:
    answer = _ask(options, "DELETE", f"/{options.id}")
    is_deleted = msgspec.json.decode(answer, type=_Deleted).deleted
    say(
        f"{options.id}  had ended; its audio is deleted"
        if is_deleted
        else _line(msgspec.json.decode(answer, type=_Job))
    )
    return 0


def _get(options: argparse.Namespace) -> int:
    with replacing(options.output) as partial, partial.open("wb") as file:
        file.writelines(_pieces(options, "GET", f"/{options.id}/audio"))
    note(f"wrote {options.output}")
    return 0


def _job(options: argparse.Namespace) -> _Job:
    return msgspec.json.decode(_ask(options, "GET", f"/{options.id}"), type=_Job)


def _line(job: _Job) -> str:
    share = job.characters_done / job.characters
    line = f"{job.id}  {job.state:<9}  {share:4.0%} of {job.characters} characters, {job.seconds:.0f} s of audio"
    return line if job.error is None else f"{line}: {job.error}"


# --- the gateway ------------------------------------------------------------------------------------------------


def _ask(options: argparse.Namespace, method: str, path: str, body: bytes | None = None) -> bytes:
    """The answer's body. Raises CommandError, InvalidInput."""
    return b"".join(_pieces(options, method, path, body))


def _pieces(options: argparse.Namespace, method: str, path: str, body: bytes | None = None) -> Iterator[bytes]:
    """The body as it comes. Raises as `_ask` does."""
    url = options.url or default_url(from_environment(os.environ))
    return pieces(
        url,
        _PATH + path,
        timeout_s=_TIMEOUT_S,
        method=method,
        body=body,
        api_key=options.api_key,
        ca_file=options.ca_file,
    )
