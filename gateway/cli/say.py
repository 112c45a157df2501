"""`voicegate say`: text from the command line or, as it arrives, from stdin; to the sound card or a file."""

import argparse
import asyncio
import codecs
import os
import ssl
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from voicegate.clients.python.audio import Audio
from voicegate.clients.python.client import Gate, OpenOptions, connect
from voicegate.clients.python.context import Context
from voicegate.clients.python.decode import check_opus
from voicegate.clients.python.dialing import LinkOptions
from voicegate.clients.python.errors import ConnectFailed, MissingDependency
from voicegate.clients.python.files import SUFFIXES, check_path, write_audio
from voicegate.clients.python.playback import SoundCard, find_sound_device
from voicegate.clients.python.recording import record
from voicegate.clients.python.report import timeline_lines, timeline_of
from voicegate.clients.python.threaded import iterate_in_thread
from voicegate.gateway.cli.extras import server_imports
from voicegate.gateway.cli.gateway_http import add_access, default_url
from voicegate.gateway.cli.ranges import in_range
from voicegate.gateway.cli.terminal import StartProgress, changing, note, say
from voicegate.gateway.config import GatewayConfig, from_environment
from voicegate.protocol.messages import Format, Ready

DEFAULT_FILE: Final = Path("say.wav")
# For a gateway on this machine: it answers at once or is not there.
_PROBE_TIMEOUT_S: Final = 2.0


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "say",
        help="speak a text",
        description="Speak a text through a running gateway, or without one through the default model in this process.",
        allow_abbrev=False,
    )
    parser.add_argument("text", nargs="?", help="what to say; without it, stdin is spoken as it arrives")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help=f"write {' or '.join(SUFFIXES)} instead of playing (without a sound device: {DEFAULT_FILE})",
    )
    parser.add_argument("--url", help="of a gateway (default: the one on the default port, if one answers)")
    add_access(parser)
    parser.add_argument("--voice", help="name of a voice (default: the model's)")
    parser.add_argument(
        "--mode", choices=("auto", "incremental", "clause", "bistream"), default="auto", help="(default: auto)"
    )
    parser.add_argument("--speed", type=in_range(float, 0.5, 2), default=1.0, help="0.5 to 2 (default: 1)")
    parser.add_argument(
        "--seed", type=in_range(int, 0, 2**63 - 1), help="makes the same speech again (default: another every time)"
    )
    parser.add_argument(
        "--language",
        metavar="TAG",
        help="of the text, such as en-GB (default: that of the voice's recording, else the model's first)",
    )
    parser.add_argument(
        "--show-reading", action="store_true", help="print what would be said, clause by clause, and say nothing"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    if options.show_reading:
        _show_reading("".join(_read_stdin()) if options.text is None else options.text, options.language or "en")
    else:
        asyncio.run(_say(options))
    return 0


def _show_reading(text: str, language: str) -> None:
    """Needs no gateway and no model."""
    with server_imports():
        from voicegate.engine.preview import preview  # noqa: PLC0415 - the base install has no Babel
    for clause in preview(text, language):
        if clause.pause_ms:
            say(f"(a pause of {clause.pause_ms} ms)")
        elif clause.spoken:
            say(clause.spoken)


async def _say(options: argparse.Namespace) -> None:
    target = _choose_target(options.output)
    text = iterate_in_thread(_read_stdin) if options.text is None else options.text
    if options.text is None and sys.stdin.isatty():
        note("type what is to be said; Ctrl-D ends it")
    async with AsyncExitStack() as stack:
        gate = await _enter_gate(stack, options.url, options.api_key, options.ca_file)
        context = await gate.open(**_open_options(options, target, gate.ready))
        audio = await _deliver(context, text, target)
    if target.file is not None:
        _write(target.file, context, audio)
    timeline = timeline_of(context, audio)
    for line in timeline_lines(timeline):
        note(line)
    if timeline is None and (languages := gate.ready.languages):
        note(f"the model speaks {', '.join(languages)}, and may know no letter of another script")


def _write(file: Path, context: Context, audio: Sequence[Audio]) -> None:
    with changing(file):
        write_audio(file, context.opened, audio)
    note(f"wrote {file}")


@dataclass(frozen=True, slots=True)
class _Target:
    file: Path | None  # None: the sound card

    @property
    def format(self) -> Format:
        """PCM for a .wav: exact, and no libopus needed here."""
        is_wav = self.file is not None and self.file.suffix.lower() == ".wav"
        return Format(codec="pcm_s16le") if is_wav else Format()


def _choose_target(output: Path | None) -> _Target:
    if output is not None:
        check_path(output)
        return _Target(output)
    try:
        device = find_sound_device()
        check_opus()
    except MissingDependency as error:
        check_path(DEFAULT_FILE)
        note(f"{error}; writing {DEFAULT_FILE}")
        return _Target(DEFAULT_FILE)
    note(f"playing on {device}")
    return _Target(None)


def _open_options(options: argparse.Namespace, target: _Target, ready: Ready) -> OpenOptions:
    return OpenOptions(
        voice=options.voice,
        mode=options.mode,
        speed=options.speed,
        seed=options.seed,
        language=options.language,
        format=target.format,
        # A file has no listener to stay close to: it is made as fast as the server allows.
        lead_ms=None if target.file is None else ready.limits.lead_ms,
    )


async def _deliver(context: Context, text: str | AsyncIterator[str], target: _Target) -> list[Audio]:
    if target.file is not None:
        return await record(context, text)
    async with SoundCard(context.opened) as card:
        audio = await record(context, text, card.play)
        await card.drained()
    return audio


# --- which gateway ----------------------------------------------------------------------------------------------


async def _enter_gate(stack: AsyncExitStack, url: str | None, api_key: str | None, ca_file: Path | None) -> Gate:
    """Raises CommandError, ConnectFailed, InvalidInput, ConfigError."""
    if url is not None:
        return await stack.enter_async_context(connect(url, api_key=api_key, ca_file=ca_file))
    config = from_environment(os.environ)
    try:
        return await stack.enter_async_context(_connect_to_default(config, api_key, ca_file))
    except ConnectFailed as error:
        if _is_there(error):
            raise
    note(f"no gateway on port {config.port}: starting one in this process")
    note(f"with the model {config.found_model_dir()}")
    with server_imports():
        from voicegate.gateway.cli import local  # noqa: PLC0415 - imports torch
        from voicegate.gateway.logs import configure_logs  # noqa: PLC0415

    configure_logs("warning", "console")
    local_url = await stack.enter_async_context(local.local_gateway(config, on_progress=StartProgress()))
    return await stack.enter_async_context(connect(local_url))


def _is_there(error: ConnectFailed) -> bool:
    """Whether a gateway is, and lets no one in: it starts, drains or is full, asks for a key, or speaks TLS or none."""
    if error.status is not None:
        return error.is_transient or error.status == HTTPStatus.UNAUTHORIZED
    cause = error.__cause__
    return isinstance(cause, ssl.SSLError) or not isinstance(cause, OSError)


def _connect_to_default(config: GatewayConfig, api_key: str | None, ca_file: Path | None) -> Gate:
    options = LinkOptions(connect_timeout_s=_PROBE_TIMEOUT_S)
    return connect(default_url(config), api_key=api_key, ca_file=ca_file, link_options=options)


# --- text -------------------------------------------------------------------------------------------------------


def _read_stdin() -> Iterator[str]:
    """Text as it arrives, not line by line; what is no UTF-8 becomes replacement characters."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    while received := os.read(sys.stdin.fileno(), 4096):
        yield decoder.decode(received)
    yield decoder.decode(b"", final=True)
