"""The server: listens, warms the engine up, lets sockets in, drains, exits. Owns every long-lived task.

The listener opens before the engine is loaded and closes last, so that /healthz and /readyz always answer.
"""

import asyncio
import contextlib
import os
import signal
from enum import Enum
from typing import Final

from voicegate.engine.interface import Engine, EngineError, EngineInfo, EngineStopped
from voicegate.gateway.auth.access import Access
from voicegate.gateway.config import GatewayConfig
from voicegate.gateway.hangups import num_held_hangups
from voicegate.gateway.logs import get_logger
from voicegate.gateway.server.agent import Agent
from voicegate.gateway.server.conversations.admission import Admission
from voicegate.gateway.server.conversations.conversation import Conversation
from voicegate.gateway.server.conversations.dispatch import Dispatcher
from voicegate.gateway.server.conversations.guests import Guests
from voicegate.gateway.server.conversations.resumption import Resumption
from voicegate.gateway.server.conversations.services import Services, Trace
from voicegate.gateway.server.entrance.exposure import exposures_of
from voicegate.gateway.server.entrance.sites import sites_of
from voicegate.gateway.server.errors import GatewayError
from voicegate.gateway.server.http.clones import Clones
from voicegate.gateway.server.http.enrolment import Enrolment
from voicegate.gateway.server.http.stage import Stage
from voicegate.gateway.server.jobs.jobs import Jobs
from voicegate.gateway.server.listener import Listener
from voicegate.gateway.server.metrics.exporter import Exporter
from voicegate.gateway.server.reloading import Reloading
from voicegate.gateway.server.service_manager import ServiceManager
from voicegate.gateway.server.starting import (
    certificate_of,
    job_settings_of,
    keyring_of,
    pronunciations_of,
    quota_limits_of,
    resume_limits_of,
    session_limits_of,
    token_secret_of,
    waiting_limits_of,
)
from voicegate.gateway.server.status import Load, Status
from voicegate.gateway.server.watchdog import Watchdog
from voicegate.gateway.server.websocket.socket_handler import SocketHandler
from voicegate.gateway.server.wyoming import WyomingServer
from voicegate.gateway.session.quota import Holding, Quotas
from voicegate.gateway.session.voice_names import VoiceNames

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
# Kept of the drain time, as far as there is that much: for closing handshakes, and for what is left of listening.
CLOSING_S: Final = 2.0
_LAST_WAIT_S: Final = 0.5

log = get_logger(__name__)


class Phase(Enum):
    """The value is what /readyz says; None: ready."""

    WARMING_UP = "warming up"
    READY = None
    DRAINING = "draining: this server is going away"
    FAILED = "the engine has stopped"


class Gateway:
    """`owns_process`: an engine that loads, or hangs, cannot be interrupted, and is left where it is at the end."""

    def __init__(
        self,
        config: GatewayConfig,
        engine: Engine,
        *,
        owns_process: bool = False,
        manager: ServiceManager | None = None,
        trace: Trace | None = None,
    ) -> None:
        self._config = config
        self._owns_process = owns_process
        self._manager = manager or ServiceManager({})
        self._engine = engine
        self._admission = Admission(engine, waiting_limits_of(config))
        self._dispatcher = Dispatcher(engine, on_place=self._admission.note_end)
        self.quotas = Quotas(quota_limits_of(config))
        self._exporter = Exporter(self._status, engine.stats, tags=config.counted_tags)
        meters = self._exporter.meters
        limits, pronunciations = session_limits_of(config), pronunciations_of(config)
        services = Services(
            engine, self._dispatcher, self._admission, limits, self.quotas, meters, trace, pronunciations
        )
        self._watchdog = Watchdog(
            engine, config.engine_timeout_s, on_change=self.meet_engine, on_lag=meters.note_lag, manager=self._manager
        )
        self.guests = Guests()
        self._resumption = Resumption(resume_limits_of(config), self.quotas, on_return=meters.note_return)
        meters.show_kept_bytes(lambda: self._resumption.num_kept_bytes)
        self._access = Access(keyring_of(config), token_secret_of(config))
        self._voice_names = VoiceNames(config.named_voices)
        enrolment = Enrolment(self._access, is_allowed=config.enrolment, max_voices=config.max_voices)
        job_settings = job_settings_of(config)
        self._jobs = None if job_settings is None else Jobs(job_settings, services, self._access, self._may_speak_jobs)
        stage = Stage(
            status=self._status,
            sites=sites_of(config),
            access=self._access,
            services=services,
            guests=self.guests,
            voice_names=self._voice_names,
            max_body_bytes=config.max_message_bytes,
            enrolment=enrolment,
            clones=Clones(engine, enrolment),
            jobs=self._jobs,
        )
        handler = SocketHandler(stage, self._resumption, lambda: self._info_now, on_greeted=self._catch_up)
        self._listener = Listener(
            config, self.quotas, stage, certificate=certificate_of(config), serve_socket=handler.serve
        )
        self._reloading = Reloading(config, stage, self._listener, self._resumption, meters)
        self._agent = Agent(self._status)
        self._wyoming = WyomingServer(config, self.quotas, stage)
        self._phase = Phase.WARMING_UP
        self._drain_until_s: float | None = None  # once it drains
        self._info: EngineInfo | None = None
        self.is_engine_left = False
        self.url = ""  # of the stream, once it listens
        self.metrics_url: str | None = None  # where it tells them
        self.agent_port: int | None = None  # where a balancer asks
        self.wyoming_port: int | None = None
        self.listening = asyncio.Event()
        self.settled = asyncio.Event()  # ready, or never going to be
        self.failure: str | None = None  # why it ended other than by being told to

    @property
    def is_ready(self) -> bool:
        return self._phase is Phase.READY

    async def run(self) -> int:
        """Serve until SIGTERM or SIGINT; a second SIGINT kills. Returns the exit status."""
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()

        def interrupt() -> None:
            stop.set()
            # From here on the kernel's own answer to SIGINT: exit now, whatever this process is doing.
            loop.remove_signal_handler(signal.SIGINT)
            signal.signal(signal.SIGINT, signal.SIG_DFL)

        loop.add_signal_handler(signal.SIGINT, interrupt)
        loop.add_signal_handler(signal.SIGTERM, stop.set)
        # Where there is nothing to read again it can only mean that the terminal has closed, if there is one.
        is_end = not self._config.has_files_to_read_again and os.isatty(0)
        loop.add_signal_handler(signal.SIGHUP, stop.set if is_end else self.reload)
        if num_held_hangups() and not is_end:
            self.reload()
        try:
            return await self.serve_until(stop)
        finally:
            loop.remove_signal_handler(signal.SIGHUP)
            loop.remove_signal_handler(signal.SIGTERM)
            loop.remove_signal_handler(signal.SIGINT)

    async def serve_until(self, stop: asyncio.Event) -> int:
        """Returns the exit status after `stop` and the drain, or when the engine died. Raises GatewayError."""
        try:
            return await self._serve_until(stop)
        finally:
            self.settled.set()

    async def _serve_until(self, stop: asyncio.Event) -> int:
        await self._open_ports()
        self.listening.set()
        ports = {"agent_port": self.agent_port, "wyoming_port": self.wyoming_port}
        log.info("listening", url=self.url, metrics_url=self.metrics_url, **ports)
        for exposure in exposures_of(self._config, asks_for_keys=self._access.asks_for_keys):
            log.warning(exposure.what, host=self._config.host, remedy=exposure.remedy)
        if self._access.lets_nobody_in:
            log.warning("there are no keys: no client is let in", file=str(self._config.api_keys_file))
        try:
            async with asyncio.TaskGroup() as tasks:
                engine = tasks.create_task(self._run_engine())
                stopping = tasks.create_task(stop.wait())
                watching = tasks.create_task(self._watchdog.run())
                jobs = None if self._jobs is None else tasks.create_task(self._jobs.run())
                await asyncio.wait({engine, stopping}, return_when=asyncio.FIRST_COMPLETED)
                if jobs is not None:
                    jobs.cancel()
                if not engine.done():
                    draining = tasks.create_task(self._drain())
                    await asyncio.wait({engine, draining}, return_when=asyncio.FIRST_COMPLETED)
                    draining.cancel()
                if engine.done():
                    self.failure = engine.result()
                    await self._tell_failure()
                stopping.cancel()
                engine.cancel()
                watching.cancel()
        finally:
            await self._close()
        log.info("stopped", failure=self.failure)
        return EXIT_OK if self.failure is None else EXIT_FAILED

    async def _open_ports(self) -> None:
        """Raises GatewayError; then none is open."""
        if self._jobs is not None:
            await self._jobs.open()
        if self._config.metrics_port is not None:
            self.metrics_url = self._exporter.open(self._config.metrics_host, self._config.metrics_port)
        try:
            if self._config.agent_port is not None:
                self.agent_port = await self._agent.open(self._config.agent_host, self._config.agent_port)
            if self._config.wyoming_port is not None:
                self.wyoming_port = await self._wyoming.open(self._config.host, self._config.wyoming_port)
            self.url = await self._listener.open()
        except GatewayError:
            await self._close_jobs()
            await self._wyoming.close()
            await self._agent.close()
            self._exporter.close()
            raise

    async def _close_jobs(self) -> None:
        if self._jobs is not None:
            await self._jobs.close()

    # --- start --------------------------------------------------------------------------------------------

    async def _run_engine(self) -> str:
        """Returns why the engine runs no more; `serve_until` cancels it otherwise."""
        try:
            await self._start_engine()
            self._info = self._engine.info
            self._phase = Phase.READY
            self._manager.ready()
            self.settled.set()
            info = self._info
            if astray := self._voice_names.astray(info):
                log.warning("voice_aliases_of_no_voice", aliases=astray, instead=info.default_voice)
            log.info("ready", model=info.model, voices=len(info.voices), flow=info.flow, vocoder=info.vocoder)
            await self._dispatcher.run()
        except EngineError as error:
            log.error("engine failed", reason=str(error))
            return str(error)
        except Exception as error:  # the root of the engine's task: the server ends with it
            log.exception("engine failed")
            return f"{type(error).__name__}: {error}"
        log.error("engine died")
        return "the engine died"

    async def _start_engine(self) -> None:
        try:
            await self._engine.start()
        except asyncio.CancelledError:
            log.info("stopped while the engine was loading")
            self.is_engine_left = self._owns_process
            raise

    @property
    def _info_now(self) -> EngineInfo | None:
        """With the voices that there are now; as it last was, of an engine that has stopped."""
        if self._info is not None:
            with contextlib.suppress(EngineStopped):
                self._info = self._engine.info
        return self._info

    def meet_engine(self, trouble: str | None) -> None:
        """It hangs, or (None) goes on."""
        self._admission.trouble = trouble
        if trouble is not None:
            for conversation in self._conversations:
                conversation.engine_hangs(trouble)

    @property
    def _num_job_places(self) -> int:
        return 0 if self._jobs is None else self._jobs.num_places

    def _may_speak_jobs(self) -> bool:
        return self._phase is Phase.READY and self._watchdog.trouble is None and self._engine.unready_reason is None

    @property
    def _conversations(self) -> list[Conversation]:
        """Conversations with a socket, and those that may come back."""
        present = [guest.conversation for guest in self.guests]
        return [*present, *(binding.conversation for binding in self._resumption.absent)]

    def _catch_up(self, conversation: Conversation) -> None:
        """Until its greeting it was no guest: keys were read again, or a drain begun, without it."""
        self._reloading.admit_again(conversation)
        if self._drain_until_s is not None:
            rest_s = max(0.0, self._drain_until_s - asyncio.get_running_loop().time())
            conversation.drain(deadline_ms=round(rest_s * 1000))

    def reload(self) -> None:
        """Read the files that may change while it runs; a bad one changes nothing."""
        self._reloading.read_again()

    def _status(self) -> Status:
        info, limits, waiting = self._info_now, self.quotas.limits, self._admission
        load = Load(
            sockets=self.quotas.in_all(Holding.SOCKET),
            max_sockets=limits.sockets,
            contexts=self.quotas.in_all(Holding.CONTEXT),
            max_contexts=limits.contexts,
            utterances=self.quotas.in_all(Holding.UTTERANCE),
            max_utterances=0 if info is None else info.max_utterances,
            room=0 if waiting.trouble else self._engine.room + self._num_job_places,
            waiting=waiting.num_waiting,
            max_waiting=waiting.max_waiting,
            retry_after_ms=waiting.retry_after_ms,
        )
        hang = self._watchdog.trouble
        absent = self.quotas.in_all(Holding.ABSENT)
        unready_reason = self._phase.value or hang or self._engine.unready_reason
        return Status(unready_reason, info, load, hang, absent, is_in_vain=waiting.is_in_vain)

    # --- end ----------------------------------------------------------------------------------------------

    async def _drain(self) -> None:
        """Let contexts finish for most of the drain time, end the others, and close."""
        self._phase = Phase.DRAINING
        self._manager.stopping()
        finishing_s = max(0.0, self._config.drain_s - CLOSING_S - _LAST_WAIT_S)
        log.info("draining", guests=len(self.guests), absent=len(self._resumption.absent), finishing_s=finishing_s)
        self._resumption.close()
        self._drain_until_s = asyncio.get_running_loop().time() + finishing_s
        for guest in self.guests:
            guest.conversation.drain(deadline_ms=round(finishing_s * 1000))
        if not await self.guests.wait_until_empty(finishing_s):
            if num_unfinished := self.guests.num_contexts:
                log.warning("drain time is over", unfinished_contexts=num_unfinished)
            for guest in self.guests:
                guest.conversation.drain_deadline()
            await self.guests.wait_until_empty(min(CLOSING_S, self._config.drain_s))

    async def _tell_failure(self) -> None:
        self._phase = Phase.FAILED
        for conversation in self._conversations:
            conversation.engine_stopped()
        self._resumption.close()
        await self.guests.wait_until_empty(CLOSING_S)

    async def _close(self) -> None:
        await self._close_jobs()
        for guest in self.guests:
            guest.abort()
        await self._agent.close()
        await self._wyoming.close()
        await self._listener.close()
        await asyncio.to_thread(self._exporter.close)
        if self._owns_process and (self._watchdog.trouble is not None or any(self._engine.stats().hangs.values())):
            self.is_engine_left = True  # its thread would be waited for in vain
        if not self.is_engine_left:
            await self._engine.close()
