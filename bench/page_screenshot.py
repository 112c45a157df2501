"""The picture of the README: the tiny model speaks on the browser client's page, in a real Chromium.

python -m voicegate.bench.page_screenshot [--output FILE] [--dark] [--width 1200] [--after-s 3] [--threads 1]
"""

import argparse
import asyncio
import shutil
import sys
from pathlib import Path
from typing import Final

from voicegate.gateway.config import GatewayConfig

CHROMIUMS: Final = ("chromium", "chromium-browser", "google-chrome")
# In the page: until so much was heard, then what it shows of underruns.
_LISTEN: Final = """async (seconds) => {
    const shown = (id) => parseFloat(document.getElementById(id).textContent);
    while (!(shown("heard") >= seconds)) await new Promise((resolve) => setTimeout(resolve, 10));
    return shown("underruns");
}"""


async def take(options: argparse.Namespace) -> tuple[float, str]:
    """Returns the number of underruns that the picture shows, and after what time there was sound."""
    from playwright.async_api import async_playwright  # noqa: PLC0415 - of the extra `dev`

    from voicegate.gateway.cli.local import local_gateway  # noqa: PLC0415 - imports torch
    from voicegate.gateway.logs import configure_logs  # noqa: PLC0415

    configure_logs("warning", "console")
    async with local_gateway(GatewayConfig(threads=options.threads)) as url, async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=options.chromium, args=["--no-sandbox"])
        page = await browser.new_page(
            color_scheme="dark" if options.dark else "light", viewport={"width": options.width, "height": 400}
        )
        await page.goto(url.replace("ws://", "http://").partition("/v1/")[0])
        await page.locator("#voice:not(:disabled)").wait_for()
        await page.get_by_role("button", name="Speak").click()
        await page.mouse.move(0, 0)
        underruns: float = await page.evaluate(_LISTEN, options.after_s)
        first_sound = await page.locator("#first-sound").inner_text()
        options.output.parent.mkdir(parents=True, exist_ok=True)
        await page.screenshot(path=options.output, full_page=True)
        await browser.close()
    return underruns, first_sound


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("docs/images/page.png"))
    parser.add_argument("--dark", action="store_true")
    parser.add_argument("--width", type=int, default=1200)
    parser.add_argument("--after-s", type=float, default=3.0, help="of speech")
    parser.add_argument("--threads", type=int, help="of the engine (default: one a core; fewer leave Chromium some)")
    parser.add_argument("--chromium", default=next(filter(None, map(shutil.which, CHROMIUMS)), None))
    options = parser.parse_args()
    if options.chromium is None:
        print("page_screenshot: no Chromium on the PATH; name one with --chromium", file=sys.stderr)
        return 1
    underruns, first_sound = asyncio.run(take(options))
    size = options.output.stat().st_size // 1024
    print(f"{options.output}: {size} KiB, first sound after {first_sound}, {underruns:.0f} underruns")
    return 0


if __name__ == "__main__":
    sys.exit(main())
