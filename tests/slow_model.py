"""An OpenAI-compatible server on loopback: it calls the tools a test wants, then writes its answer word by word, as
slowly as a test wants."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class SlowModel:
    """Makes the `calls` first, one for each question. Then it answers with `text`, one word each time `pace` seconds
    passed; while it is held it waits after the first half."""

    def __init__(self, text: str, pace: float = 0.02) -> None:
        self.text = text
        self.pace = pace
        self.go_on = threading.Event()
        self.go_on.set()
        self.asked: list[dict[str, Any]] = []
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.url = ""

    def hold(self) -> None:
        self.go_on.clear()

    def release(self) -> None:
        self.go_on.set()

    def words(self) -> Iterator[str]:
        words = self.text.split(" ")
        for place, word in enumerate(words):
            if place == len(words) // 2:
                self.go_on.wait(60)
            yield word if place == 0 else f" {word}"


@contextmanager
def slow_model(text: str, pace: float = 0.02) -> Iterator[SlowModel]:
    model = SlowModel(text, pace)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            model.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            if not model.asked[-1].get("stream"):
                self._whole()
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            try:
                self._stream()
            except OSError:
                return

        def _whole(self) -> None:
            message: dict[str, Any] = {"role": "assistant", "content": model.text}
            if model.calls:
                name, arguments = model.calls.pop(0)
                function = {"name": name, "arguments": json.dumps(arguments)}
                message = {"role": "assistant", "content": None}
                message["tool_calls"] = [{"id": "c1", "type": "function", "function": function}]
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
            whole = {"id": "c", "object": "chat.completion", "created": 1, "model": "slow", "choices": [choice]}
            body = json.dumps(whole | {"usage": usage}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def _stream(self) -> None:
            for word in model.words():
                self._send({"role": "assistant", "content": word})
                threading.Event().wait(model.pace)
            self._send({}, "stop")
            self.wfile.write(b"data: [DONE]\n\n")

        def _send(self, delta: dict[str, Any], finish: str | None = None) -> None:
            choice = {"index": 0, "delta": delta, "finish_reason": finish}
            chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "slow", "choices": [choice]}
            self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
            self.wfile.flush()

        def log_message(self, *_: Any) -> None:
            """A test's output is the test's."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    model.url = f"http://127.0.0.1:{server.server_port}/v1"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield model
    finally:
        model.release()
        server.shutdown()
        server.server_close()
