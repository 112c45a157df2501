"""Checks of the files that settings name, by the functions with which a start reads them."""

from collections.abc import Iterator

from voicegate.gateway.cli.checks.finding import Finding, Level
from voicegate.gateway.config import GatewayConfig
from voicegate.gateway.install_command import install_command


def check_settings(config: GatewayConfig) -> Iterator[Finding]:
    """Finds settings that would end a start; those in order are not mentioned."""
    try:
        from voicegate.gateway.server.errors import GatewayError  # noqa: PLC0415 - the server's packages, see main.py
        from voicegate.gateway.server.starting import (  # noqa: PLC0415
            certificate_of,
            keyring_of,
            pronunciations_of,
        )
    except ImportError as error:
        yield Finding(Level.FAIL, "server", f"cannot be imported ({error}): {install_command('server')}")
        return
    for subject, read in (("keys", keyring_of), ("words", pronunciations_of), ("tls", certificate_of)):
        try:
            read(config)
        except GatewayError as error:
            yield Finding(Level.FAIL, subject, str(error))
