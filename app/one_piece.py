"""Two things that waitress does in more steps than needed, and one that it lets pass.

It sends the head of an answer and then its body. Here the head leaves with the first piece of the body, which saves the
server and the client a packet; what a page streams still leaves as it is written.

It gives a connection back to the thread that watches all of them after every answer, and gets it from there with the
next request. Here the thread that answered listens for a moment itself, since whoever has just been answered often has
more to say. It does so only while no other request waits for a thread.

It takes a request that says twice how long it is, and believes one of the two. A proxy may believe the other, and then
the end of one person's request is the beginning of somebody else's. Here such a request is refused.
"""

from __future__ import annotations

import re
import select
import threading
import time
from typing import Any

from waitress.channel import HTTPChannel
from waitress.parser import HTTPRequestParser, ParsingError
from waitress.server import BaseWSGIServer
from waitress.task import WSGITask

LISTENS_MS = 20
IN_CHUNKS = re.compile(rb"\r\ntransfer-encoding:", re.IGNORECASE)


class Parser(HTTPRequestParser):  # type: ignore[misc]
    def parse_header(self, header_plus: bytes) -> None:
        super().parse_header(header_plus)
        if "CONTENT_LENGTH" in self.headers and IN_CHUNKS.search(header_plus):
            self.expect_continue = False
            raise ParsingError("Content-Length and Transfer-Encoding exclude each other")


class Pieces:
    """Stands for the channel while a head and what follows it are written."""

    def __init__(self, server: BaseWSGIServer) -> None:
        self.server = server
        self.written: list[bytes] = []

    def write_soon(self, data: bytes) -> int:
        self.written.append(data)
        return len(data)


class Task(WSGITask):  # type: ignore[misc]
    def service(self) -> None:
        super().service()
        if not self.close_on_finish:
            self.channel.listen()

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


class Beside:
    """Stands for the server in one channel: the thread at work on the channel goes on with its next request itself, and
    then the thread that watches has nothing to look after."""

    def __init__(self, channel: Channel, server: BaseWSGIServer) -> None:
        self._channel = channel
        self._server = server

    def __getattr__(self, name: str) -> Any:
        return getattr(self._server, name)

    def add_task(self, channel: Channel) -> None:
        if threading.get_ident() == channel.thread:
            channel.goes_on = True
        else:
            self._server.add_task(channel)

    def pull_trigger(self) -> None:
        channel = self._channel
        if channel.requests and not (channel.total_outbufs_len or channel.will_close or channel.close_when_flushed):
            return
        self._server.pull_trigger()


class Channel(HTTPChannel):  # type: ignore[misc]
    parser_class = Parser
    task_class = Task
    thread: int | None = None
    goes_on = False

    def __init__(self, server: BaseWSGIServer, *arguments: Any, **more: Any) -> None:
        super().__init__(server, *arguments, **more)
        self.server = Beside(self, server)

    def service(self) -> None:
        self.thread = threading.get_ident()
        self.goes_on = True
        while self.goes_on:
            self.goes_on = False
            super().service()

    def listen(self) -> None:
        """Take in what the client sends within a moment of its answer. Whatever is odd is left as it is: the thread
        that watches finds it so, and knows what to do."""
        if len(self.requests) > 1 or self.total_outbufs_len or self.server.task_dispatcher.queue:
            return
        waiting = select.poll()
        try:
            waiting.register(self.socket, select.POLLIN)
            data = self.socket.recv(self.adj.recv_bytes) if waiting.poll(LISTENS_MS) else b""
        except (OSError, ValueError):
            return
        if data:
            self.last_activity = time.time()
            self.received(data)
