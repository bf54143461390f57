"""How many requests model servers get at once, as the operator writes it: `4`, or `127.0.0.1:8080=1, openai=16`."""

import re

from app.errors import Invalid

ANY = "*"
MAX_SLOTS = 1000
ENTRY = re.compile(r"(?:(?P<server>[^\s=,]{1,200})\s*=\s*)?(?P<slots>[0-9]{1,4})", re.ASCII)


def read_model_slots(text: str) -> dict[str, int]:
    """The limit of each server that is named, and of all others under `*`. A server is the `host:port` of an
    OpenAI-compatible one, or a provider such as `openai`. A server without a limit is not in it."""
    found: dict[str, int] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        entry = ENTRY.fullmatch(part)
        if entry is None or not 1 <= int(entry["slots"]) <= MAX_SLOTS:
            raise Invalid(f"{part[:80]!r}: write a number from 1 to {MAX_SLOTS:,}, or server=number.")
        found[(entry["server"] or ANY).lower()] = int(entry["slots"])
    return found


def slots_for(server: str, limits: dict[str, int]) -> int | None:
    """How many requests this server gets at once; None without a limit."""
    return limits.get(server.lower(), limits.get(ANY))
