"""The scripts that make the README's sounds and its animation."""

import io
import json
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import av
import numpy as np

from voicegate.bench.page_animation import at_a_steady_rate, write_webp
from voicegate.bench.sample_sounds import TEXT, say


def png(level: int) -> bytes:
    into = io.BytesIO()
    with av.open(into, "w", format="image2pipe") as file:
        stream = file.add_stream("png", rate=1)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "rgb24"
        file.mux(stream.encode(av.VideoFrame.from_ndarray(np.full((48, 64, 3), level, np.uint8), format="rgb24")))
        file.mux(stream.encode(None))
    return into.getvalue()


def test_what_stood_there_is_shown_again_where_nothing_was_drawn() -> None:
    drawn = [(10.0, b"a"), (10.05, b"b"), (10.3, b"c"), (10.4, b"d")]
    assert at_a_steady_rate(drawn, 10) == [b"a", b"b", b"b", b"c", b"d"]


def test_the_frames_become_an_animation_that_goes_on(tmp_path: Path) -> None:
    write_webp(tmp_path / "page.webp", [png(0), png(128), png(255)], 10)
    content = (tmp_path / "page.webp").read_bytes()
    assert (content[:4], content[8:12]) == (b"RIFF", b"WEBP")
    assert content.count(b"ANMF") == 3
    loops = content.index(b"ANIM") + 8 + 4
    assert content[loops : loops + 2] == b"\0\0", "for ever"


def test_a_voice_is_asked_for_by_name_and_its_file_has_that_name(tmp_path: Path) -> None:
    asked = []

    class Speech(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"an MP3")

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Speech) as server:
        serving = Thread(target=server.handle_request)
        serving.start()
        path = say(f"http://127.0.0.1:{server.server_port}/v1/audio/speech", "woman", tmp_path)
        serving.join()
    assert path == tmp_path / "woman.mp3"
    assert path.read_bytes() == b"an MP3"
    assert [(each["voice"], each["input"], each["response_format"]) for each in asked] == [("woman", TEXT, "mp3")]
