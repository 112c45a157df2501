"""SIGHUP: the files of keys, of pronunciations and of the certificate are read again. A bad one changes nothing."""

from dataclasses import replace

from voicegate.gateway.config import GatewayConfig
from voicegate.gateway.config_fields import ConfigError
from voicegate.gateway.logs import get_logger
from voicegate.gateway.server.conversations.conversation import Conversation
from voicegate.gateway.server.conversations.resumption import Resumption
from voicegate.gateway.server.errors import GatewayError
from voicegate.gateway.server.http.stage import Stage
from voicegate.gateway.server.listener import Listener
from voicegate.gateway.server.metrics.meters import Meters
from voicegate.gateway.server.starting import keyring_of

log = get_logger(__name__)


class Reloading:
    def __init__(
        self, config: GatewayConfig, stage: Stage, listener: Listener, resumption: Resumption, meters: Meters
    ) -> None:
        """All files have been read, else there is no server."""
        self._config = config
        self._meters = meters
        self._access = stage.access
        self._pronunciations = stage.services.pronunciations
        self._guests = stage.guests
        self._listener = listener
        self._resumption = resumption
        if config.api_keys_file is not None:
            meters.note_read("keys", is_good=True)
        if config.pronunciations_file is not None:
            meters.note_read("pronunciations", is_good=True)
        if listener.certificate is not None:
            meters.note_read("certificate", is_good=True)
            meters.show_expiry(listener.certificate.valid_until)

    def read_again(self) -> None:
        if not self._config.has_files_to_read_again:
            log.info("nothing to read again: no file of keys or pronunciations, and no certificate")
            return
        self._read_keys()
        self._read_pronunciations()
        self._read_certificate()

    def _read_keys(self) -> None:
        """Reads keys again. Holders of a removed one are cut off; new limits count from here on."""
        try:
            keyring = keyring_of(self._config)
        except GatewayError as error:
            log.error("keys are not read again, the old ones stay", reason=str(error))
            self._meters.note_read("keys", is_good=False)
            return
        if keyring is None:
            return
        if self._config.api_keys_file is not None:
            self._meters.note_read("keys", is_good=True)
        self._access.replace(keyring)
        if self._access.lets_nobody_in:
            log.warning("keys are read again, none is left: no client is let in", file=str(self._config.api_keys_file))
        else:
            log.info("keys are read again", keys=len(keyring.keys))
        for guest in self._guests:
            self.admit_again(guest.conversation)
        for binding in self._resumption.absent:
            if not self.admit_again(binding.conversation):
                self._resumption.end(binding)

    def admit_again(self, conversation: Conversation) -> bool:
        """With its key as it is now; False: it is none any more."""
        if not self._access.asks_for_keys:
            return True
        key = self._access.current(conversation.owner.key)
        if key is None:
            conversation.revoke()
            return False
        conversation.move_to(replace(conversation.owner, key=key))
        return True

    def _read_pronunciations(self) -> None:
        try:
            num_entries = self._pronunciations.reload()
        except ConfigError as error:
            log.error("pronunciations are not read again, the old ones stay", reason=str(error))
            self._meters.note_read("pronunciations", is_good=False)
            return
        if num_entries is not None:
            log.info("pronunciations are read again", entries=num_entries)
            self._meters.note_read("pronunciations", is_good=True)

    def _read_certificate(self) -> None:
        certificate = self._listener.certificate
        if certificate is None:
            return
        try:
            certificate.reload()
        except ConfigError as error:
            until = certificate.valid_until.isoformat()
            log.error("the certificate is not read again, the old one stays", reason=str(error), valid_until=until)
            self._meters.note_read("certificate", is_good=False)
            return
        log.info("the certificate is read again", valid_until=certificate.valid_until.isoformat())
        self._meters.note_read("certificate", is_good=True)
        self._meters.show_expiry(certificate.valid_until)
