"""An encoder process: `python -m voicegate.engine.audio.encoder_process`, started and fed by EncoderChild alone.

It imports neither torch nor the models. It ends when its standard input does, and is started deaf to the signals that
a whole group gets (encoder_child).
"""

import os
import sys
from typing import BinaryIO

import msgspec
import numpy as np

from voicegate.engine.audio.encoder_wire import Operation, Status, pack_packets, read_frame, write_frame
from voicegate.engine.audio.packets import PacketEncoder, create_packet_encoder
from voicegate.engine.interface import AudioFormat


class EncoderServer:
    def __init__(self) -> None:
        self._encoders: dict[int, PacketEncoder] = {}

    def serve(self, source: BinaryIO, target: BinaryIO) -> None:
        write_frame(target, Status.READY, 0, 0, b"")
        while (frame := read_frame(source)) is not None:
            kind, number, _, body = frame
            try:
                answer = self._perform(Operation(kind), number, body)
            except Exception as error:  # noqa: BLE001 - told to the engine, which fails this utterance alone
                self._encoders.pop(number, None)
                write_frame(target, Status.FAILED, number, 0, repr(error).encode())
                continue
            if answer is not None:
                packets, num_samples = answer
                write_frame(target, Status.DONE, number, num_samples, pack_packets(packets))

    def _perform(self, operation: Operation, number: int, body: bytes) -> tuple[list[bytes], int] | None:
        match operation:
            case Operation.OPEN:
                self._encoders[number] = create_packet_encoder(msgspec.json.decode(body, type=AudioFormat))
                return None
            case Operation.ENCODE:
                samples = np.frombuffer(body, np.float32)
                return self._encoders[number].encode(samples), len(samples)
            case Operation.FLUSH:
                return self._encoders[number].flush()
            case Operation.FINISH:
                return self._encoders[number].finish(), 0
            case Operation.CLOSE:
                self._encoders.pop(number, None)
                return None


def main() -> None:
    create_packet_encoder(AudioFormat())  # finds and loads libopus: before it is ready, not at its first utterance
    try:
        EncoderServer().serve(sys.stdin.buffer, sys.stdout.buffer)
    except BrokenPipeError:
        os._exit(1)  # the engine was killed; to flush what it did not read, as an exit does, would fail again


if __name__ == "__main__":
    main()
