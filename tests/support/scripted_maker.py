"""Stands in for a maker process: reads its task and does what the voice's name says. No torch."""

import os
import signal
import sys

import msgspec

from voicegate.engine.voices.maker_wire import NotMade, Task, read_message, write_message


def main() -> None:
    body = read_message(sys.stdin.buffer)
    assert body is not None
    name = msgspec.msgpack.decode(body, type=Task).voice.name
    match name:
        case "busy":
            sys.stdin.buffer.read()  # until who asks is gone
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "refused":
            write_message(sys.stdout.buffer, NotMade("VoiceRefused", "too quiet"))
        case _:
            pass


if __name__ == "__main__":
    main()
