"""Errors that the server raises.

GatewayError   the server cannot run; the message says why and what to do
"""


class GatewayError(Exception):
    pass
