"""The time that a certificate tells, against `cryptography`, which trustme brings to tests."""

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from voicegate.gateway.server.entrance.validity import valid_until

KEY = ec.generate_private_key(ec.SECP256R1())


def pem_of(until: datetime, *, name: str = "gate.example", num_names: int = 1) -> str:
    names = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    built = (
        x509.CertificateBuilder()
        .subject_name(names)
        .issuer_name(names)
        .public_key(KEY.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime(2020, 1, 1, tzinfo=UTC))
        .not_valid_after(until)
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName(f"g{each}.example") for each in range(num_names)]), False
        )
        .sign(KEY, hashes.SHA256())
    )
    return built.public_bytes(serialization.Encoding.PEM).decode()


@pytest.mark.parametrize("until", ["2027-02-28T23:59:59", "2049-12-31T00:00:00", "2051-01-02T03:04:05"])
def test_the_end_is_told_in_this_century_and_a_half(until: str) -> None:
    """Years from 2050 on are written with four digits."""
    time = datetime.fromisoformat(until).replace(tzinfo=UTC)
    assert valid_until(pem_of(time)) == time


def test_long_certificates_and_words_before_them_do_not_matter() -> None:
    until = datetime(2030, 1, 1, tzinfo=UTC)
    text = "subject=CN gate\n" + pem_of(until, num_names=200) + pem_of(until + timedelta(days=1))
    assert valid_until(text) == until, "the first is the server's own"
    assert valid_until(text.replace(" CERTIFICATE", " X509 CERTIFICATE")) == until


@pytest.mark.parametrize("length", [0, 100, 200])
def test_what_breaks_off_has_no_time(length: int) -> None:
    pem = pem_of(datetime(2030, 1, 1, tzinfo=UTC))
    with pytest.raises(ValueError, match=r"no certificate|breaks off|unpack|padding"):
        valid_until(f"{pem[:length]}-----END" if length else "hello")
