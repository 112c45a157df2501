"""`python -m voicegate`, and the `voicegate` command."""

import sys

from voicegate.gateway.cli.main import run
from voicegate.gateway.cli.terminal import open_standard_streams


def main() -> int:
    open_standard_streams()
    return run()


if __name__ == "__main__":
    sys.exit(main())
