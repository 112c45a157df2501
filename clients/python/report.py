"""A timeline in words, for people: what `voicegate say` and `make demo` print. Pure."""

from collections.abc import Sequence

from voicegate.clients.python.audio import Audio
from voicegate.clients.python.context import Context
from voicegate.clients.python.timeline import Arrival, Timeline, measure

# A listener notices a gap of this length; C50 and C100 of `voicegate bench` count turns without one.
_NOTICED_MS = 50


def timeline_of(context: Context, audio: Sequence[Audio]) -> Timeline | None:
    """Timeline of a context whose audio has been read; None where there was nothing to hear."""
    arrivals = [Arrival(item.arrived_s, item.pts_48k, item.duration_48k) for item in audio if item.duration_48k]
    if context.first_text_s is None or not arrivals:
        return None
    return measure(
        context.first_text_s, arrivals, pre_skip_48k=context.opened.pre_skip, end_pts_48k=context.end_pts_48k
    )


def timeline_lines(timeline: Timeline | None) -> list[str]:
    if timeline is None:
        return ["there was nothing to say"]
    lines = [
        f"{'time to first audio':<22}{timeline.first_audio_s * 1000:8.0f} ms",
        f"{'audio':<22}{timeline.audio_s:8.2f} s",
        f"{'real-time factor':<22}{timeline.rtf:8.2f}",
    ]
    for playback in timeline.playbacks:
        label = f"underruns, {playback.prebuffer_ms} ms" if playback.prebuffer_ms else "underruns, no buffer"
        underruns = playback.underruns
        worst = f", worst {underruns.worst_s * 1000:.0f} ms" if underruns.num else ""
        lines.append(f"{label:<22}{underruns.num:8d}{worst}")
    if timeline.is_continuous(_NOTICED_MS) is False:
        lines.append(
            f"A player without a buffer would have paused for more than {_NOTICED_MS} ms. Either the text came slowly, "
            "or this machine makes speech too slowly: a buffer hides that; fewer streams, more cores or a GPU mend it."
        )
    return lines
