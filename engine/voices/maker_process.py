"""A maker process: `python -m voicegate.engine.voices.maker_process`, started by maker.py for one voice.

What reads a stranger's sound file and runs foreign models does it here: neither their faults nor their load are the
engine's. It ends when its standard input does.
"""

import os
import sys
import threading
from typing import Final

import msgspec

from voicegate.engine.voices.maker_wire import Task, read_message, write_message

# Niceness, up to 19. Lower -> it takes more from speech where cores are short; higher -> a voice takes longer to be
# made there.
_NICENESS: Final = 5


def main() -> None:
    os.nice(_NICENESS)
    # Output of libraries goes to standard error: it is no answer.
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)
        task = read_message(sys.stdin.buffer)
        if task is None:
            return
        threading.Thread(target=_end_with_who_asks, daemon=True).start()
        from voicegate.engine.voices.making import answer_to  # noqa: PLC0415 - imports torch: behind all above

        write_message(answers, answer_to(msgspec.msgpack.decode(task, type=Task)))


def _end_with_who_asks() -> None:
    os.read(0, 1)  # not by sys.stdin, whose lock an exit would wait for
    os._exit(1)


if __name__ == "__main__":
    main()
