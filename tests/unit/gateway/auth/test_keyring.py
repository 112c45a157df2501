"""API keys: what a line may say, who is found by a secret, and that nothing shows one."""

import pytest

from voicegate.gateway.auth.access import Access, Unauthorized
from voicegate.gateway.auth.keyring import Allowance, Key, Keyring, check_name, digest_of, key_line, new_secret
from voicegate.gateway.auth.keyring import parse_keys as parse
from voicegate.gateway.config_fields import ConfigError

ANN = Key("ann", digest_of("secret of ann"), Allowance(sockets=3, utterances=2))
BEN = Key("ben", digest_of("secret of ben"))


def test_a_line_says_what_a_key_is() -> None:
    text = f"# ours\n\n{key_line(ANN)}  # since May\n  {key_line(BEN)}\n"
    assert parse(text, "file") == (ANN, BEN)
    assert key_line(ANN) == f"ann sha256:{ANN.digest.hex()} sockets=3 utterances=2"
    assert parse("", "file") == ()


@pytest.mark.parametrize(
    "line",
    [
        "vg_secret-itself",
        "ann vg_secret-itself",
        "ann sha256:1234",
        f"-ann sha256:{'0' * 64}",
        f"a/b sha256:{'0' * 64}",
        f"ann sha256:{'0' * 64} sockets=0",
        f"ann sha256:{'0' * 64} sockets=x",
        f"ann sha256:{'0' * 64} vg_secret-itself",
        f"ann sha256:{'0' * 64} words=3",
    ],
)
def test_a_bad_line_is_named_and_not_shown(line: str) -> None:
    with pytest.raises(ConfigError, match=r"keys\.txt, line 2") as caught:
        parse(f"{key_line(BEN)}\n{line}\n", "keys.txt")
    assert "vg_secret" not in str(caught.value)


def test_a_name_and_a_key_are_there_once() -> None:
    for again in (Key("ann", BEN.digest), Key("other", ANN.digest)):
        with pytest.raises(ConfigError, match="twice"):
            parse(f"{key_line(ANN)}\n{key_line(again)}\n", "keys.txt")


def test_names() -> None:
    assert check_name("kiosk-7.lobby_2") == "kiosk-7.lobby_2"
    for name in ("", "-x", "a b", "#a", "a" * 65, "a\n", "é"):
        with pytest.raises(ConfigError):
            check_name(name)


def test_a_key_is_found_by_its_secret_alone() -> None:
    ring = Keyring((ANN, BEN))
    assert ring.find("secret of ann") is ANN
    assert ring.find("secret of ben") is BEN
    for wrong in ("", "secret of an", "secret of ann ", ANN.digest.hex(), f"sha256:{ANN.digest.hex()}", "\udcff"):
        assert ring.find(wrong) is None
    assert Keyring().find("secret of ann") is None


def test_secrets_are_long_and_new_every_time() -> None:
    made = {new_secret() for _ in range(100)}
    assert len(made) == 100
    assert all(secret.startswith("vg_") and len(secret) == 46 for secret in made)


def test_nothing_shows_a_digest() -> None:
    assert ANN.digest.hex() not in repr(ANN)
    assert repr(ANN.digest) not in repr(ANN)


def test_who_is_let_in() -> None:
    assert Access(None, b"").identify([], 0.0) is None
    assert Access(None, b"").identify(["anything"], 0.0) is None
    access = Access(Keyring((ANN,)), b"")
    assert access.identify(["of another vendor", "secret of ann"], 0.0) is ANN
    with pytest.raises(Unauthorized, match="Authorization: Bearer"):
        access.identify([], 0.0)
    with pytest.raises(Unauthorized, match="not known here") as caught:
        access.identify(["secret of ben"], 0.0)
    assert "ben" not in str(caught.value)


def test_an_empty_ring_lets_nobody_in() -> None:
    with pytest.raises(Unauthorized):
        Access(Keyring(), b"").identify(["secret of ann"], 0.0)


def test_who_is_still_let_in() -> None:
    access = Access(Keyring((ANN, BEN)), b"")
    assert access.still_admits(ANN)
    access.replace(Keyring((Key("ann", ANN.digest, Allowance(sockets=1)), Key("ben", digest_of("new")))))
    assert access.still_admits(ANN)  # its limits are others
    assert not access.still_admits(BEN)  # another secret
    assert not access.still_admits(None)
    assert Access(None, b"").still_admits(None)


def test_a_request_that_names_many_keys_is_refused_unread() -> None:
    access = Access(Keyring((ANN,)), b"")
    assert access.identify([*map(str, range(15)), "secret of ann"], 0.0) is ANN
    with pytest.raises(Unauthorized, match="17 keys in one request are too many"):
        access.identify([*map(str, range(16)), "secret of ann"], 0.0)
