"""Until when a certificate is valid. The ssl module tells that of peers' certificates alone, so the DER is read. Pure.

RFC 5280, section 4.1: Certificate and TBSCertificate are sequences; validity follows version, serial, signature and
issuer. X.690 has the encoding.
"""

import re
from binascii import a2b_base64
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

_VERSION: Final = 0xA0  # optional
_UTC_TIME: Final = 0x17  # with two digits of the year; GeneralizedTime has four
_FIELDS_BEFORE_VALIDITY: Final = 3  # without the version
# OpenSSL takes all three.
_PEM: Final = re.compile(r"-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----(.*?)-----END", re.DOTALL)


def valid_until(pem: str) -> datetime:
    """By the first certificate, which is the server's own. Raises ValueError."""
    found = _PEM.search(pem)
    if found is None:
        raise ValueError("no certificate in PEM")
    try:
        (_, certificate), *_ = _values(a2b_base64(found[1]))
        (_, signed), *_ = _values(certificate)
        fields = [value for tag, value in _values(signed) if tag != _VERSION]
        _, (tag, text) = _values(fields[_FIELDS_BEFORE_VALIDITY])
    except IndexError as error:
        raise ValueError("a certificate that breaks off") from error
    pattern = "%y%m%d%H%M%SZ" if tag == _UTC_TIME else "%Y%m%d%H%M%SZ"
    return datetime.strptime(text.decode("ascii"), pattern).replace(tzinfo=UTC)


def _values(der: bytes) -> Iterator[tuple[int, bytes]]:
    """Tags and contents, one after another."""
    place = 0
    while place < len(der):
        tag, length = der[place], der[place + 1]
        place += 2
        if length & 0x80:  # so many bytes hold the length
            num_bytes = length & 0x7F
            length = int.from_bytes(der[place : place + num_bytes], "big")
            place += num_bytes
        yield tag, der[place : place + length]
        place += length
