"""What agents answered, as it is kept in a file: ids by name and times relative to now, the same everywhere."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID

from app.demo.world import HERE, World
from app.learning.prompt import KEY_DIGITS, MARK_DIGITS

FILE = "recorded.ndjson"
ID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
TIME = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00:00)")
DAY = re.compile(r"\b\d{4}-\d\d-\d\d\b")
REFERENCE = re.compile(r"ref:([a-z0-9_.-]*[a-z0-9])|\{at (-?[\d.]+)\}|\{iso (-?\d+)\}")
# The mark around knowledge in a prompt and on its lines is the workspace's own, and so is the hash of the whole.
OWN = "sha256"
MARK = re.compile(r"(?<=workspace-knowledge )[0-9a-f]{32}(?=>>>)")


@dataclass
class Recorded:
    """How a conversation went. `again` is the second try at what a person rejected."""

    talk: str
    status: str = "completed"
    error: str | None = None
    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    again: Recorded | None = None

    def line(self) -> str:
        return json.dumps(self.as_dict(), ensure_ascii=False, separators=(",", ":"))

    def as_dict(self) -> dict[str, Any]:
        again = {"again": self.again.as_dict()} if self.again else {}
        return {"talk": self.talk, "status": self.status, "error": self.error, "events": self.events, **again}


def read_recorded() -> dict[str, Recorded]:
    """Every recorded conversation by its key."""
    lines = (HERE / FILE).read_text(encoding="utf-8").splitlines()
    found = [_read(json.loads(line)) for line in lines if line]
    return {one.talk: one for one in found}


def _read(given: dict[str, Any]) -> Recorded:
    again = _read(given["again"]) if "again" in given else None
    events = [(kind, payload) for kind, payload in given["events"]]
    return Recorded(given["talk"], given["status"], given["error"], events, again)


def _without_mark(text: str) -> str:
    found = MARK.search(text)
    return MARK.sub("0" * MARK_DIGITS, text).replace(found[0][:KEY_DIGITS], "0" * KEY_DIGITS) if found else text


class Names:
    """From this workspace's ids and times to names, and back."""

    def __init__(self, world: World, talk: str) -> None:
        self.world = world
        self.talk = talk

    def named(self, events: Iterable[tuple[str, dict[str, Any]]]) -> list[tuple[str, dict[str, Any]]]:
        """Events as they are kept. What is new gets a name of its own."""
        known = {str(value): name for name, value in self.world.refs.items()}
        return [(kind, self._named(payload, known)) for kind, payload in events]

    def _named(self, value: Any, known: dict[str, str]) -> Any:
        if isinstance(value, dict):
            return {name: None if name == OWN else self._named(inner, known) for name, inner in value.items()}
        if isinstance(value, list):
            return [self._named(inner, known) for inner in value]
        return self._in_text(value, known) if isinstance(value, str) else value

    def _in_text(self, text: str, known: dict[str, str]) -> str:
        now = self.world.now

        def name(found: re.Match[str]) -> str:
            if found[0] not in known:
                new = f"new.{self.talk}.{sum(one.startswith(f'new.{self.talk}.') for one in self.world.refs) + 1}"
                known[found[0]], self.world.refs[new] = new, UUID(found[0])
            return f"ref:{known[found[0]]}"

        def since(found: re.Match[str]) -> str:
            return f"{{at {(datetime.fromisoformat(found[0]) - now).total_seconds():.6f}}}"

        def ago(found: re.Match[str]) -> str:
            try:
                return f"{{iso {(now.date() - date.fromisoformat(found[0])).days}}}"
            except ValueError:
                return found[0]

        return DAY.sub(ago, TIME.sub(since, ID.sub(name, _without_mark(text))))

    def resolved(self, value: Any) -> Any:
        """The same with the ids and times of this workspace."""
        if isinstance(value, dict):
            return {name: self.resolved(inner) for name, inner in value.items()}
        if isinstance(value, list):
            return [self.resolved(inner) for inner in value]
        return REFERENCE.sub(self._resolve, value) if isinstance(value, str) else value

    def _resolve(self, found: re.Match[str]) -> str:
        if found[1]:
            return str(self.world.refs[found[1]])
        if found[2]:
            moment = self.world.past(self.world.now + timedelta(seconds=float(found[2])))
            return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
        return (self.world.now - timedelta(days=int(found[3]))).date().isoformat()
