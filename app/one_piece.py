"""Waitress sends the head of an answer and then its body. Here the head leaves with the first piece of the body, which
saves the server and the client a packet; what a page streams still leaves as it is written."""

from __future__ import annotations

from typing import Any

from waitress.channel import HTTPChannel
from waitress.server import BaseWSGIServer
from waitress.task import WSGITask


class Pieces:
    """Stands for the channel while a head and what follows it are written."""

    def __init__(self, server: BaseWSGIServer) -> None:
        self.server = server
        self.written: list[bytes] = []

    def write_soon(self, data: bytes) -> int:
        self.written.append(data)
        return len(data)


class Task(WSGITask):  # type: ignore[misc]
    def write(self, data: Any) -> None:
        if self.wrote_header:
            super().write(data)
            return
        channel: HTTPChannel = self.channel
        pieces = Pieces(channel.server)
        self.channel: Any = pieces
        try:
            super().write(data)
        finally:
            self.channel = channel
        channel.write_soon(b"".join(pieces.written))


class Channel(HTTPChannel):  # type: ignore[misc]
    task_class = Task
