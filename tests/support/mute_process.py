"""An encoder process that is ready, closes its output, and goes on until it is killed."""

import os
import sys
import threading

from voicegate.engine.audio.encoder_wire import Status, write_frame

if __name__ == "__main__":
    write_frame(sys.stdout.buffer, Status.READY, 0, 0, b"")
    os.close(sys.stdout.fileno())
    threading.Event().wait()
