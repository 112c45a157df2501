"""`python -m voicegate`, and the `voicegate` command."""

import sys

from voicegate.gateway.cli.interrupts import interrupts_end_it


def main() -> int:
    with interrupts_end_it():
        from voicegate.gateway.cli.main import run  # noqa: PLC0415
        from voicegate.gateway.cli.terminal import open_standard_streams  # noqa: PLC0415

    open_standard_streams()
    return run()


if __name__ == "__main__":
    sys.exit(main())
