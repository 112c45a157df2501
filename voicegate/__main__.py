"""`python -m voicegate`, and the `voicegate` command."""

import sys

from voicegate.gateway.cli.main import run


def main() -> int:
    return run()


if __name__ == "__main__":
    sys.exit(main())
