"""The animation of the README: text is typed word by word on the browser client's page, and speech follows it.

    python -m voicegate.bench.page_animation [--output docs/images/page.webp] [--width 900] [--frames-per-s 10]

The picture is what a real Chromium draws beside the tiny model; run it on an idle machine, or it shows underruns.
"""

import argparse
import asyncio
import base64
import io
import shutil
import sys
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

from voicegate.bench import servers
from voicegate.bench.page_screenshot import CHROMIUMS
from voicegate.gateway.config import tiny_model_dir

TEXT: Final = (
    "Your agent is still writing this sentence, and you hear its first words already. "
    "Whenever you like, you may interrupt it."
)
_WORDS_PER_S: Final = 12
_AFTER_S: Final = 1.0  # shown when all is said
_QUALITY: Final = 80  # of WebP, to 100
_EVERY_FRAME: Final = 6  # of 60 a second: as many as are shown. Lower takes more of the cores that speech is made on

Frame = tuple[float, bytes]  # when it was drawn, in seconds; PNG


async def record(url: str, options: argparse.Namespace) -> tuple[list[Frame], float]:
    """Returns what was drawn, and the number of underruns."""
    from playwright.async_api import async_playwright  # noqa: PLC0415 - of the extra `dev`

    frames: list[Frame] = []
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=options.chromium, args=["--no-sandbox"])
        page = await browser.new_page(color_scheme="light", viewport={"width": options.width, "height": options.height})
        await page.goto(url)
        await page.locator("#voice:not(:disabled)").wait_for()
        await page.get_by_label("Text", exact=True).fill(TEXT)
        await page.get_by_label("word by word").check()
        await page.locator("#rate").fill(str(_WORDS_PER_S))
        drawing = await page.context.new_cdp_session(page)

        def keep(event: dict[str, Any]) -> None:
            frames.append((event["metadata"]["timestamp"], base64.b64decode(event["data"])))
            acknowledging.add(asyncio.ensure_future(acknowledge(event["sessionId"])))

        async def acknowledge(session: int) -> None:
            await drawing.send("Page.screencastFrameAck", {"sessionId": session})

        acknowledging: set[asyncio.Future[None]] = set()
        drawing.on("Page.screencastFrame", keep)
        await drawing.send("Page.startScreencast", {"format": "png", "everyNthFrame": _EVERY_FRAME})
        await page.get_by_role("button", name="Speak").click()
        await page.mouse.move(0, 0)
        await page.locator("#status.done").wait_for(timeout=0)
        underruns = float(await page.locator("#underruns").inner_text())
        await drawing.send("Page.stopScreencast")
        await asyncio.gather(*acknowledging)
        ended_s, at_last = frames[-1][0], await page.screenshot()  # the last of every few frames is not the last one
        frames += [(ended_s + 0.1, at_last), (ended_s + _AFTER_S, at_last)]
        await browser.close()
    return frames, underruns


def at_a_steady_rate(frames: Sequence[Frame], frames_per_s: int) -> list[bytes]:
    """The frame that stood there at each time: Chromium draws where something changes."""
    start_s, end_s = frames[0][0], frames[-1][0]
    shown: list[bytes] = []
    number = 0
    for tick in range(int((end_s - start_s) * frames_per_s) + 1):
        while number + 1 < len(frames) and frames[number + 1][0] <= start_s + tick / frames_per_s:
            number += 1
        shown.append(frames[number][1])
    return shown


def write_webp(path: Path, frames: Sequence[bytes], frames_per_s: int) -> None:
    import av  # noqa: PLC0415 - of the extra `server`

    pictures = []
    for number, png in enumerate(frames):
        with av.open(io.BytesIO(png), "r") as drawn:
            picture = next(drawn.decode(video=0)).reformat(format="yuv420p")
        picture.pts, picture.time_base = number, Fraction(1, frames_per_s)
        pictures.append(picture)
    with av.open(str(path), "w", format="webp", options={"loop": "0"}) as file:
        stream = file.add_stream("libwebp_anim", rate=frames_per_s, options={"quality": str(_QUALITY)})
        stream.width, stream.height, stream.pix_fmt = pictures[0].width, pictures[0].height, "yuv420p"
        for each in (*pictures, None):
            file.mux(stream.encode(each))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("docs/images/page.webp"))
    parser.add_argument("--width", type=int, default=900)
    parser.add_argument("--height", type=int, default=760)
    parser.add_argument("--frames-per-s", type=int, default=10)
    parser.add_argument("--chromium", default=next(filter(None, map(shutil.which, CHROMIUMS)), None))
    options = parser.parse_args()
    if options.chromium is None:
        print("page_animation: no Chromium on the PATH; name one with --chromium", file=sys.stderr)
        return 1
    # In a process of its own, as a user's: the engine shares no thread with those who take pictures.
    with servers.voicegate(tiny_model_dir(), (), Path("build/page-animation.log")) as (url, _, _):
        frames, underruns = asyncio.run(record(servers.http_of(url, "/"), options))
    shown = at_a_steady_rate(frames, options.frames_per_s)
    write_webp(options.output, shown, options.frames_per_s)
    print(
        f"{options.output}: {options.output.stat().st_size // 1024} KiB, {len(shown)} frames, {underruns:.0f} underruns"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
