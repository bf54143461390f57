"""A model on loopback that takes its time: OpenAI's chat completions, in one piece and as a stream.

It can use a tool first: what the person said is given to the tool, and once its result is there the model answers.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class SlowModel(ThreadingHTTPServer):
    """`asked` counts requests; `tool` is (name, argument) of the tool to use before the answer; `answer` says what is
    answered to what a person said."""

    daemon_threads = True
    request_queue_size = 512

    def __init__(self, seconds: float, tool: tuple[str, str] | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.seconds, self.tool = seconds, tool
        self.answer: Callable[[str], str] = lambda _: "That is done."
        self.lock = threading.Lock()
        self.asked = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def message(self, body: dict[str, Any]) -> dict[str, Any]:
        last = body["messages"][-1]
        if self.tool and last["role"] == "user":
            name, argument = self.tool
            call = {"name": name, "arguments": json.dumps({argument: last["content"]})}
            return {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": call}],
            }
        said = next((one["content"] for one in reversed(body["messages"]) if one["role"] == "user"), "")
        return {"role": "assistant", "content": self.answer(str(said))}


class _Handler(BaseHTTPRequestHandler):
    server: SlowModel
    protocol_version = "HTTP/1.1"
    # Headers and body are two writes, which would else wait for each other's acknowledgement.
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            self.server.asked += 1
        time.sleep(self.server.seconds)
        message = self.server.message(body)
        kind = "chat.completion.chunk" if body.get("stream") else "chat.completion"
        part = "delta" if body.get("stream") else "message"
        ended = "tool_calls" if "tool_calls" in message else "stop"
        answer = {
            "id": "x", "object": kind, "created": 0, "model": body["model"],
            "choices": [{"index": 0, part: message, "finish_reason": ended}],
            "usage": {"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 13},
        }  # fmt: skip
        text = json.dumps(answer)
        if body.get("stream"):
            self._send("text/event-stream", f"data: {text}\n\ndata: [DONE]\n\n")
        else:
            self._send("application/json", text)

    def _send(self, kind: str, text: str) -> None:
        content = text.encode()
        try:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
        except ConnectionError:
            # Whoever asked was killed meanwhile.
            self.close_connection = True

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def slow_model(seconds: float, tool: tuple[str, str] | None = None) -> Iterator[SlowModel]:
    server = SlowModel(seconds, tool)
    threading.Thread(target=server.serve_forever, args=(0.05,), name="slow-model", daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
