"""Reports of a player: which are news for the engine."""

from voicegate.engine.interface import ListenerReport
from voicegate.gateway.session.player import Player
from voicegate.protocol.messages import Playback


def playback(played_ms: int, buffer_ms: int = 500, underruns: int = 0) -> Playback:
    return Playback("a", played_ms, buffer_ms, underruns)


def test_the_first_report_is_news_and_steady_playing_is_not() -> None:
    player = Player()
    assert player.report(playback(100), 10.0) == ListenerReport(100)
    for step in range(1, 50):
        assert player.report(playback(100 + step * 250), 10.0 + step * 0.25) is None


def test_who_is_elsewhere_than_was_told_is_told_of() -> None:
    player = Player()
    player.report(playback(100), 10.0)
    assert player.report(playback(350), 10.5) == ListenerReport(350)
    assert player.report(playback(600), 10.75) is None


def test_a_player_that_stands_still_with_audio_has_paused_until_it_moves() -> None:
    player = Player()
    player.report(playback(100), 10.0)
    assert player.report(playback(100), 10.05) is None, "it has not played another packet yet"
    assert player.report(playback(100), 10.25) == ListenerReport(100, is_playing=False)
    assert player.report(playback(100), 60.0) is None, "that is known"
    assert player.report(playback(120), 60.3) == ListenerReport(120)


def test_a_player_that_stands_still_without_audio_waits_for_it() -> None:
    player = Player()
    player.report(playback(100), 10.0)
    assert player.report(playback(100, buffer_ms=0), 12.0) == ListenerReport(100)


def test_each_further_underrun_is_news() -> None:
    player = Player()
    player.report(playback(100), 10.0)
    assert player.report(playback(200, underruns=1), 10.1) == ListenerReport(200, num_underruns=1)
    assert player.report(playback(300, underruns=1), 10.2) is None


def test_what_its_socket_does_not_take_nobody_plays() -> None:
    player = Player()
    assert player.reach(is_reachable=True) is None
    assert player.reach(is_reachable=False) == ListenerReport(is_playing=False)
    assert player.reach(is_reachable=False) is None
    assert player.report(playback(100), 10.0) is None, "it plays on what it has, and takes no more"
    assert player.reach(is_reachable=True) == ListenerReport()


def test_where_it_is_after_its_socket_was_held_up_is_news() -> None:
    """The engine's clock stood meanwhile: a player that played on would keep so much less than its lead for good."""
    player = Player()
    player.report(playback(100), 10.0)
    player.reach(is_reachable=False)
    assert player.report(playback(5_100), 15.0) is None
    player.reach(is_reachable=True)
    assert player.report(playback(5_600), 15.5) == ListenerReport(5_600)
    assert player.report(playback(6_100), 16.0) is None


def test_a_player_that_paused_is_still_paused_when_its_socket_takes_more() -> None:
    player = Player()
    player.report(playback(100), 10.0)
    player.report(playback(100), 11.0)
    assert player.reach(is_reachable=False) is None
    assert player.reach(is_reachable=True) is None
    assert player.report(playback(200), 12.0) == ListenerReport(200)
