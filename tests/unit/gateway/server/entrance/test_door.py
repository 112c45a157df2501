"""Places: sockets up to their number, and probes whatever the others do."""

from voicegate.gateway.auth.keyring import Allowance
from voicegate.gateway.server.entrance.door import Door
from voicegate.gateway.session.quota import Owner, QuotaLimits, Quotas

ANN, BEN = Owner("ann"), Owner("ben")


def new_door(*, sockets: int = 2, num_spare: int = 3, sockets_per_owner: int | None = None) -> Door[str]:
    limits = QuotaLimits(sockets=sockets, per_address=Allowance(sockets=sockets_per_owner))
    return Door(Quotas(limits), num_spare=num_spare)


def test_sockets_have_their_number_and_handshakes_count() -> None:
    door = new_door(sockets=2)
    for name in ("a", "b"):
        assert door.arrive(name) is None
        assert door.admit(name, ANN) is None
    assert door.num_sockets == 2
    door.arrive("c")
    assert set(door.connections) == {"a", "b", "c"}
    excess = door.admit("c", BEN)
    assert excess is not None
    assert (excess.limit, excess.is_of_owner) == (2, False)
    door.leave("a")
    assert door.num_sockets == 1
    assert door.admit("c", BEN) is None


def test_an_owner_has_so_many() -> None:
    door = new_door(sockets_per_owner=1)
    for name in ("a", "b", "c"):
        assert door.arrive(name) is None
    assert door.admit("a", ANN) is None
    excess = door.admit("b", ANN)
    assert excess is not None
    assert excess.is_of_owner
    assert str(excess) == "1 sockets are open from your address, which is its limit"
    assert door.admit("c", BEN) is None
    door.leave("a")
    assert door.admit("b", ANN) is None


def test_who_connects_and_says_nothing_goes_first() -> None:
    door = new_door(sockets=1, num_spare=2)
    assert [door.arrive(name) for name in "abc"] == [None, None, None]
    assert door.arrive("d") == "a"
    assert door.arrive("e") == "b"
    door.leave("a")  # its connection is lost a little later
    door.leave("b")
    assert door.arrive("f") == "c"


def test_who_comes_in_great_numbers_makes_room_first() -> None:
    door = new_door(sockets=1, num_spare=3)
    assert door.arrive("slow", "ann") is None
    assert [door.arrive(f"flood {number}", "eve") for number in range(4)] == [None, None, None, "flood 0"]
    assert door.arrive("other", "ben") == "flood 1"
    assert door.arrive("flood 4", "eve") == "flood 2"
    assert door.admit("slow", ANN) is None
    door.leave("other")
    assert set(door.connections) == {"slow", "flood 3", "flood 4"}


def test_of_addresses_that_have_as_many_the_oldest_connection_goes() -> None:
    """Whichever address was there first: one of many people has somebody new in its handshake all the time."""
    door = new_door(sockets=1, num_spare=2)
    assert [door.arrive("first", "office"), door.arrive("silent", "eve"), door.arrive("next", "office")] == [None] * 3
    door.leave("first")
    assert door.arrive("other", "ben") is None
    assert door.arrive("probe", "prober") == "silent"


def test_sockets_are_never_cut_for_others() -> None:
    door = new_door(sockets=1, num_spare=1)
    door.arrive("socket")
    door.admit("socket", ANN)
    door.arrive("probe")
    assert door.arrive("next") == "probe"
    assert door.num_sockets == 1


def test_who_was_cut_or_left_while_it_shook_hands_takes_no_place() -> None:
    door = new_door(sockets=1, num_spare=0)
    door.arrive("a")
    assert door.arrive("b") == "a"
    assert door.admit("a", ANN) is None  # its request was on its way
    door.leave("a")
    assert door.num_sockets == 0
    door.leave("b")
    assert door.admit("b", ANN) is None  # its request was read before, and is looked at now
    assert door.num_sockets == 0
    door.arrive("c")
    assert door.admit("c", BEN) is None
    assert door.num_sockets == 1
