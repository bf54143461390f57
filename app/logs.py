"""What the server and its workers write to standard error: one format, no chatter, and never a secret."""

from __future__ import annotations

import logging
import sys

from app.config import secret_values

FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
# At their usual level these tell every request with its address, in which the arguments of tools stand.
CHATTY = ("alembic", "apscheduler", "httpx", "httpx2", "httpcore2", "mcp", "openai", "anthropic")


class Discreet(logging.Formatter):
    """Takes the operator's secrets out of whatever a library or a traceback repeats of them."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        for secret in secret_values():
            text = text.replace(secret, "[hidden]")
        return text


def write_logs() -> None:
    """Begin to write; what was set up before stays."""
    root = logging.getLogger()
    if not root.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(Discreet(FORMAT))
        root.addHandler(handler)
        root.setLevel(logging.INFO)
    for name in CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING)
