"""What each key does: the table at the top of keys.js, for the list of keys that pages show."""

import json
from pathlib import Path
from typing import Any

from flask import Flask

SCRIPT = Path(__file__).resolve().parents[2] / "static" / "keys.js"
BEGINS, ENDS = "const UPSHOT_KEYS = ", ";\n"


def register(app: Flask) -> None:
    app.jinja_env.globals["key_table"] = read_key_table()


def read_key_table() -> list[dict[str, Any]]:
    """Return the groups of keys, each with its title."""
    text = SCRIPT.read_text(encoding="utf-8")
    table: list[dict[str, Any]] = json.loads(text[text.index(BEGINS) + len(BEGINS) : text.index(ENDS)])
    return table
