"""An OpenAI-compatible server on 127.0.0.1 that answers by script, in one piece or as a stream, and in bad ways."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

from tests.loopback import Asked, Loopback, Reply, as_json

USAGE = {"prompt_tokens": 40, "completion_tokens": 8, "total_tokens": 48}
MODES = (
    "script",
    "slow",
    "status 500",
    "status 401",
    "not json",
    "ten megabytes",
    "hang",
    "endless calls",
    "empty",
    "breaks off",
    "cut by length",
    "torn",
)


def say(text: str) -> dict[str, Any]:
    return {"content": text}


def call(name: str, arguments: Any, text: str = "") -> dict[str, Any]:
    """A call; arguments that are text are sent as they are, even if they are no JSON."""
    sent = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"content": text, "call": {"name": name, "arguments": sent}}


class LoopbackModel(Loopback):
    """Answers with the next line of the script, and with its last line ever after. With a `pace` a stream comes word by
    word, so many seconds apart; while it is held it waits in the middle of its words."""

    def __init__(self, *script: dict[str, Any], mode: str = "script", seconds: float = 1.0, pace: float = 0.0) -> None:
        assert mode in MODES
        super().__init__(self._reply)
        self.script = list(script) or [say("Done.")]
        self.mode = mode
        self.seconds = seconds
        self.pace = pace
        # How many streams still end before the chunk that says why.
        self.breaks = 100 if mode == "breaks off" else 0
        self.go_on = threading.Event()
        self.go_on.set()

    def hold(self) -> None:
        self.go_on.clear()

    def release(self) -> None:
        self.go_on.set()

    def __exit__(self, *trouble: Any) -> None:
        self.release()
        super().__exit__(*trouble)

    @property
    def base_url(self) -> str:
        return f"{self.url}/v1"

    def _reply(self, asked: Asked) -> Reply:
        if self.mode == "status 500":
            return as_json({"error": {"message": "the server has a cold"}}, 500)
        if self.mode == "status 401":
            # Some servers repeat the key that they refuse.
            return as_json({"error": {"message": f"no such key: {asked.headers.get('authorization', '')}"}}, 401)
        if self.mode == "not json":
            return Reply(b"<html>It works!</html>", content_type="application/json")
        if self.mode == "hang":
            self.left.wait(60)
        if self.mode == "slow":
            self.left.wait(self.seconds)
        if asked.json.get("stream") and self.mode == "torn":
            return Reply(self._torn(), content_type="text/event-stream", headers={"Transfer_Encoding": "chunked"})
        if asked.json.get("stream"):
            return Reply(self._stream(), content_type="text/event-stream")
        return as_json(self._whole())

    def _line(self) -> dict[str, Any]:
        place = len(self.asked) - 1
        if self.mode == "endless calls":
            return call("findEntities", {"query": f"again {place}"})
        if self.mode == "ten megabytes":
            return say("long " * 2_000_000)
        if self.mode == "empty":
            return say("")
        return self.script[min(place, len(self.script) - 1)]

    def _message(self) -> tuple[dict[str, Any], str]:
        line = self._line()
        message: dict[str, Any] = {"role": "assistant", "content": line["content"] or None}
        if "call" not in line:
            return message, "length" if self.mode == "cut by length" else "stop"
        called = {"id": f"given-{len(self.asked)}", "type": "function", "function": line["call"]}
        return message | {"tool_calls": [called]}, "tool_calls"

    def _whole(self) -> dict[str, Any]:
        message, reason = self._message()
        choice = {"index": 0, "message": message, "finish_reason": reason}
        return _envelope("chat.completion") | {"choices": [choice], "usage": USAGE}

    def _stream(self) -> Iterator[bytes]:
        message, reason = self._message()
        for piece in self._pieces(message["content"] or ""):
            yield _chunk({"role": "assistant", "content": piece})
        if self.breaks:
            self.breaks -= 1
            return
        if "tool_calls" in message:
            yield _chunk({"role": "assistant", "tool_calls": [{"index": 0, **message["tool_calls"][0]}]})
        yield _chunk({}, reason)
        yield _event(_envelope("chat.completion.chunk") | {"choices": [], "usage": USAGE})
        yield b"data: [DONE]\n\n"

    def _torn(self) -> Iterator[bytes]:
        """A chunked body that ends without its last chunk."""
        piece = next(self._stream())
        yield b"%x\r\n%b\r\n" % (len(piece), piece)

    def _pieces(self, content: str) -> Iterator[str]:
        if not self.pace:
            yield from (content[at : at + 40] for at in range(0, len(content), 40))
            return
        words = content.split(" ")
        for place, word in enumerate(words):
            if place == len(words) // 2:
                self.go_on.wait(60)
            yield word if place == 0 else f" {word}"
            self.left.wait(self.pace)


def _envelope(kind: str) -> dict[str, Any]:
    return {"id": "chatcmpl-1", "object": kind, "created": 1_700_000_000, "model": "loopback"}


def _chunk(delta: dict[str, Any], reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    return _event(_envelope("chat.completion.chunk") | {"choices": [choice]})


def _event(value: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(value)}\n\n".encode()
