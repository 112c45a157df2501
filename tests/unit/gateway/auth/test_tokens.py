"""Tokens: whose they are, until when, and that nobody else can make or change one."""

import hmac
import re
from itertools import pairwise

import pytest

from voicegate.gateway.auth import tokens
from voicegate.gateway.auth.access import Access, Unauthorized
from voicegate.gateway.auth.keyring import Key, Keyring, digest_of
from voicegate.gateway.auth.tokens import TokenExpired, holder_of, mint

ANN, BEN = Key("ann", digest_of("secret of ann")), Key("(api_key)", digest_of("secret of ben"))
RING = Keyring((ANN, BEN))
SECRET = b"of the server"


def holder(token: str, now_s: float = 100.0, ring: Keyring = RING, secret: bytes = SECRET) -> Key | None:
    return holder_of(token, ring.named, now_s, secret)


@pytest.mark.parametrize("key", [ANN, BEN], ids=lambda key: key.name)
def test_a_token_is_good_until_it_expires(key: Key) -> None:
    token = mint(key, 160, SECRET)
    assert re.fullmatch(r"[A-Za-z0-9._-]+", token)  # in a URL and in a subprotocol as it is
    assert holder(token, 100.0) is holder(token, 159.9) is key
    with pytest.raises(TokenExpired):
        holder(token, 160.0)


def test_no_character_of_it_can_be_changed() -> None:
    token = mint(ANN, 160, SECRET)
    for place in range(len(token)):
        for char in "0A9b_-.":
            forged = token[:place] + char + token[place + 1 :]
            assert forged == token or holder(forged) is None
    for forged in (
        "",
        "vgt_",
        token[:-1],
        token + "=",
        token + "A",
        f"vgt_160..{'A' * 43}",
        f"vgt_160.____.{'A' * 43}",
    ):
        assert holder(forged) is None
    assert all(one != other for one, other in pairwise([mint(ANN, 160, SECRET), mint(ANN, 161, SECRET)]))


def test_it_ends_with_its_key_and_with_the_servers_secret() -> None:
    token = mint(ANN, 160, SECRET)
    assert holder(token, ring=Keyring((BEN,))) is None
    assert holder(token, ring=Keyring((Key("ann", digest_of("new")),))) is None
    assert holder(token, secret=b"of another server") is None


def test_it_is_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []

    def compare(one: str, other: str) -> bool:
        compared.append(other)
        return hmac.compare_digest(one, other)

    monkeypatch.setattr(tokens, "compare_digest", compare)
    forged = mint(ANN, 160, b"x")
    assert holder(forged) is None
    assert compared == [forged.rpartition(".")[2]]


def test_it_lets_in_and_is_no_key() -> None:
    access = Access(RING, SECRET)
    token = access.mint(ANN, 160)
    assert access.identify(["other", token], 100.0) is ANN
    assert access.key_among([token]) is None
    with pytest.raises(Unauthorized, match="expired"):
        access.identify([token], 200.0)
    with pytest.raises(Unauthorized, match="not known"):
        access.identify([mint(ANN, 160, b"x")], 100.0)


@pytest.mark.parametrize("is_reversed", [False, True])
def test_one_of_several_that_is_good_is_enough(is_reversed: bool) -> None:
    access = Access(RING, SECRET)
    secrets = [access.mint(ANN, 160), access.mint(BEN, 300)]
    if is_reversed:
        secrets.reverse()
    assert access.identify(secrets, 200.0) is BEN
