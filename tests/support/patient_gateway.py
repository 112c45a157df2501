"""A gateway before a real model: an engine that a busy machine does not get to for a while is none that hangs."""

from typing import Final

from tests.support.patience import PATIENCE_S
from voicegate.gateway.config import GatewayConfig

PATIENT: Final = GatewayConfig(engine_timeout_s=PATIENCE_S)
