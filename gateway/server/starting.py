"""Parts of a server before it listens, from its settings and its files. Raises GatewayError."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from urllib.parse import urlsplit

from voicegate.gateway.auth.key_file import read_keys
from voicegate.gateway.auth.keyring import Allowance, Key, Keyring, digest_of
from voicegate.gateway.config import GatewayConfig, listed
from voicegate.gateway.config_fields import ConfigError
from voicegate.gateway.logs import get_logger
from voicegate.gateway.pronunciations import Pronunciations
from voicegate.gateway.server.entrance.descriptors import file_limits, make_room_for
from voicegate.gateway.server.entrance.tls import Certificate
from voicegate.gateway.server.errors import GatewayError
from voicegate.gateway.server.jobs.settings import JobSettings
from voicegate.gateway.server.jobs.webhooks import is_address, read_secret
from voicegate.gateway.session.continuity import ResumeLimits
from voicegate.gateway.session.opening import SessionLimits
from voicegate.gateway.session.quota import QuotaLimits
from voicegate.gateway.session.waiting import WaitingLimits

# Name of the setting's key; no name in a file begins like this.
_OWN_KEY_NAME: Final = "(api_key)"

log = get_logger(__name__)


def keyring_of(config: GatewayConfig) -> Keyring | None:
    """None: no key is asked for."""
    if config.api_keys_file is None and config.api_key is None:
        if config.require_key:
            raise GatewayError(
                "this server is to ask for keys and has none: set VOICEGATE_API_KEY (`openssl rand -hex 32` makes one) "
                "or --api-keys-file; --require-key false lets everybody in who reaches the port"
            )
        return None
    with _files_are_good():
        keys = () if config.api_keys_file is None else read_keys(config.api_keys_file).keys
    own = () if config.api_key is None else (Key(_OWN_KEY_NAME, digest_of(config.api_key)),)
    return Keyring((*keys, *own))


def pronunciations_of(config: GatewayConfig) -> Pronunciations:
    with _files_are_good():
        return Pronunciations(config.pronunciations_file)


def token_secret_of(config: GatewayConfig) -> bytes:
    return secrets.token_bytes(32) if config.token_secret is None else config.token_secret.encode()


def session_limits_of(config: GatewayConfig) -> SessionLimits:
    return SessionLimits(
        contexts=config.contexts_per_socket,
        text_bytes=config.text_bytes,
        context_text_bytes=config.context_text_bytes,
        context_idle_s=config.context_idle_s,
        context_life_s=config.context_life_s,
        messages_per_s=config.messages_per_s,
        resume_s=config.resume_s,
    )


def quota_limits_of(config: GatewayConfig) -> QuotaLimits:
    return QuotaLimits(
        sockets=_room_for_sockets(config.max_sockets),
        contexts=config.max_contexts,
        per_address=Allowance(config.sockets_per_address, config.contexts_per_address, config.utterances_per_address),
    )


def _check_queue(queue: str) -> None:
    """Checks what must not be logged, too; `redis_ledger.connected` checks the rest. Raises GatewayError."""
    try:
        parts = urlsplit(queue)
    except ValueError as error:
        raise GatewayError(f"jobs_queue is no address: {error}") from error
    if parts.scheme not in ("redis", "rediss", "unix"):
        raise GatewayError("jobs_queue must begin with redis://, rediss:// (TLS) or unix://")
    if parts.password is not None or "password=" in parts.query:
        raise GatewayError("jobs_queue has a password, which logs would show: set VOICEGATE_JOBS_QUEUE_PASSWORD")


def job_settings_of(config: GatewayConfig) -> JobSettings | None:
    """None: no jobs are taken."""
    queue = config.jobs_queue
    if config.jobs_dir is None and queue is not None:
        raise GatewayError("jobs_queue is set, and jobs_dir is unset: audio needs a folder that all gateways share")
    if config.jobs_dir is None:
        return None
    if queue is not None:
        _check_queue(queue)
    webhooks = listed(config.jobs_webhooks)
    if astray := [url for url in webhooks if not is_address(url)]:
        raise GatewayError(f"jobs_webhooks has {astray[0]!r}; it must be an address such as https://app.example/hooks")
    secret = read_secret(config.jobs_webhook_secret or "")
    if webhooks and secret is None:
        what = 'VOICEGATE_JOBS_WEBHOOK_SECRET="whsec_$(openssl rand -base64 32)"'
        raise GatewayError(f"jobs_webhooks is set, and nothing signs what is sent there: set {what}")
    return JobSettings(
        folder=config.jobs_dir,
        queue=queue,
        queue_password=config.jobs_queue_password,
        max_jobs=config.max_jobs,
        per_key=config.jobs_per_key,
        text_bytes=config.jobs_text_bytes,
        keep_s=config.jobs_keep_s,
        spare_bytes=config.jobs_spare_bytes,
        webhooks=webhooks,
        webhook_secret=secret or b"",
    )


def waiting_limits_of(config: GatewayConfig) -> WaitingLimits:
    return WaitingLimits(num_waiting=config.waiting_contexts, wait_s=config.waiting_s)


def resume_limits_of(config: GatewayConfig) -> ResumeLimits:
    return ResumeLimits(config.resume_s, config.resume_session_bytes, config.resume_total_bytes)


def _room_for_sockets(max_sockets: int) -> int:
    """Fewer than asked for where the limit on open files leaves no more; at least one."""
    num_sockets = make_room_for(max_sockets)
    if num_sockets < max_sockets:
        limit = file_limits().soft
        log.warning("fewer sockets than asked for", sockets=num_sockets, asked=max_sockets, open_files=limit)
    if not num_sockets:
        raise GatewayError(f"at most {limit} open files leave no room for a socket; raise the limit (ulimit -n 4096)")
    return num_sockets


def certificate_of(config: GatewayConfig) -> Certificate | None:
    """None: no TLS. Raises GatewayError."""
    if config.tls_cert is None or config.tls_key is None:
        return None
    with _files_are_good():
        return Certificate(config.tls_cert, config.tls_key)


@contextmanager
def _files_are_good() -> Iterator[None]:
    """Or the server does not start."""
    try:
        yield
    except ConfigError as error:
        raise GatewayError(str(error)) from error
