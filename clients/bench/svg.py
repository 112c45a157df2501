"""Charts as SVG text: axes, lines, bars. Colours are CSS classes, so that a page decides on light and dark. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

_WIDTH: Final = 720
_LEFT: Final = 64
_RIGHT: Final = 16
_TOP: Final = 14
_BOTTOM: Final = 42
_LEGEND_LINE: Final = 18
_NUM_TICKS: Final = 6
# Series beyond them share colours.
NUM_COLOURS: Final = 8


@dataclass(frozen=True, slots=True)
class Series:
    name: str
    points: Sequence[tuple[float, float]]
    colour: int  # of NUM_COLOURS
    is_dashed: bool = False
    has_dots: bool = False
    is_joined: bool = True  # False: dots alone, solid where a line would not be dashed


@dataclass(frozen=True, slots=True)
class Axis:
    label: str
    low: float
    high: float
    is_log: bool = False

    def share(self, value: float) -> float:
        """0 at the low end, 1 at the high one."""
        if self.is_log:
            low, high, value = math.log(self.low), math.log(self.high), math.log(max(value, self.low))
        else:
            low, high = self.low, self.high
        return (value - low) / (high - low) if high > low else 0.5

    def ticks(self) -> list[float]:
        if self.is_log:
            return _log_ticks(self.low, self.high)
        step = _round_step((self.high - self.low) / _NUM_TICKS)
        first = math.ceil(self.low / step - 1e-9)
        return [number * step for number in range(first, math.floor(self.high / step + 1e-9) + 1)]


@dataclass(frozen=True, slots=True)
class Bar:
    """A stretch of a row of a timeline; `kind` is a CSS class."""

    row: int
    begin: float
    end: float
    kind: str
    title: str = ""


def line_chart(series: Sequence[Series], x: Axis, y: Axis, *, title: str, height: int = 300) -> str:
    frame = _Frame(x, y, height)
    drawn = [frame.axes()]
    for index, each in enumerate(series):
        style = f"c{each.colour % NUM_COLOURS}{' dashed' if each.is_dashed else ''}"
        places = [(frame.x(at), frame.y(value)) for at, value in each.points]
        if each.is_joined:
            joined = " ".join(f"{left:.1f},{top:.1f}" for left, top in places)
            drawn.append(f'<polyline class="line {style}" points="{joined}"/>')
        if each.has_dots:
            drawn += [
                _dot(each, style, left, top, f"{each.name}: {value:g} at {at:g}")
                for (left, top), (at, value) in zip(places, each.points, strict=True)
            ]
        key = (
            f'<line class="line {style}" x1="0" x2="22" y1="0" y2="0"/>' if each.is_joined else _dot(each, style, 11, 0)
        )
        drawn.append(
            f'<g transform="translate({_LEFT},{height + _LEGEND_LINE * index})">'
            f'{key}<text x="28" y="4">{escape(each.name)}</text></g>'
        )
    return _svg(drawn, height + _LEGEND_LINE * len(series), title)


def _dot(series: Series, style: str, left: float, top: float, title: str = "") -> str:
    is_solid = not (series.is_joined or series.is_dashed)
    kind, radius = ("dot solid", 2) if is_solid else ("dot", 3)
    place = f'cx="{left:.1f}" cy="{top:.1f}" r="{radius}"'
    return f'<circle class="{kind} {style}" {place}><title>{escape(title)}</title></circle>'


def timeline(bars: Sequence[Bar], num_rows: int, x: Axis, *, title: str, row_height: int = 9) -> str:
    height = _TOP + num_rows * row_height + _BOTTOM
    frame = _Frame(x, Axis("", 0, num_rows), height)
    drawn = [frame.x_axis()]
    for bar in bars:
        left, right = frame.x(bar.begin), frame.x(bar.end)
        thin = (row_height - 2) / 3 if bar.kind == "wait" else 0.0
        drawn.append(
            f'<rect class="{bar.kind}" x="{left:.1f}" y="{_TOP + bar.row * row_height + 1 + thin:.1f}" '
            f'width="{max(right - left, 0.8):.1f}" height="{row_height - 2 - 2 * thin:.1f}">'
            f"<title>{escape(bar.title)}</title></rect>"
        )
    return _svg(drawn, height, title)


class _Frame:
    """Where a chart's axes put a value."""

    def __init__(self, x: Axis, y: Axis, height: int) -> None:
        self._x, self._y, self._height = x, y, height

    def x(self, value: float) -> float:
        return _LEFT + self._x.share(value) * (_WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        bottom = self._height - _BOTTOM
        return bottom - self._y.share(value) * (bottom - _TOP)

    def axes(self) -> str:
        rows = [
            f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{self.y(tick):.1f}" y2="{self.y(tick):.1f}"/>'
            f'<text class="tick end" x="{_LEFT - 6}" y="{self.y(tick) + 4:.1f}">{tick:g}</text>'
            for tick in self._y.ticks()
        ]
        turned = f'transform="translate(14,{self._height / 2:.0f}) rotate(-90)"'
        label = f'<text class="label" {turned}>{escape(self._y.label)}</text>'
        return "".join([*rows, label, self.x_axis()])

    def x_axis(self) -> str:
        bottom = self._height - _BOTTOM
        columns = [
            f'<line class="grid" x1="{self.x(tick):.1f}" x2="{self.x(tick):.1f}" y1="{_TOP}" y2="{bottom}"/>'
            f'<text class="tick middle" x="{self.x(tick):.1f}" y="{bottom + 15}">{tick:g}</text>'
            for tick in self._x.ticks()
        ]
        label = f'<text class="label" x="{(_LEFT + _WIDTH) / 2:.0f}" y="{bottom + 32}">{escape(self._x.label)}</text>'
        return "".join([*columns, label])


def _svg(drawn: Sequence[str], height: int, title: str) -> str:
    body = "".join(drawn)
    return (
        f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{escape(title)}" '
        f'xmlns="http://www.w3.org/2000/svg">{body}</svg>'
    )


def _round_step(step: float) -> float:
    """1, 2 or 5 times a power of ten, not below `step`."""
    if step <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(step))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= step * (1 - 1e-9))


def _log_ticks(low: float, high: float) -> list[float]:
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [factor * 10.0**power for power in powers for factor in (1, 2, 5)]
    return [tick for tick in ticks if low * 0.999 <= tick <= high * 1.001]
