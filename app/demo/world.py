"""What the demo's conversations happen in: who is there, which records there are, what is known at a time."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from importlib.resources import files
from typing import Any
from uuid import UUID

from app.actor import Actor
from app.demo.talks import Talk, expand, read_talks
from app.models import SharedContext

REFERENCE = re.compile(r"ref:([a-z-]+)")
HERE = files("app.demo")
# Which records an agent's work is about, and so which knowledge it gets.
CONCERNS = {"deal-analyst": ("deal",), "extractor": ("deal",), "sales-ops": ("company", "contact")}


@dataclass(frozen=True)
class Known:
    """A knowledge row that is in force."""

    id: UUID
    version: int
    type: str
    content: str
    agent: str | None
    entity_type: str | None


@dataclass
class World:
    now: datetime
    system: Actor
    people: dict[str, Actor] = field(default_factory=dict)
    agents: dict[str, UUID] = field(default_factory=dict)
    types: dict[str, UUID] = field(default_factory=dict)
    criteria: dict[str, UUID] = field(default_factory=dict)
    records: dict[str, UUID] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    labels: dict[str, UUID] = field(default_factory=dict)
    waiting: dict[str, list[UUID]] = field(default_factory=dict)
    known: dict[UUID, Known] = field(default_factory=dict)
    used: dict[UUID, list[datetime]] = field(default_factory=dict)
    rows: dict[str, SharedContext] = field(default_factory=dict)

    def ago(self, days: float) -> datetime:
        return self.now - timedelta(days=days)

    def past(self, at: datetime) -> datetime:
        """Nothing of the demo happens in the future."""
        return min(at, self.now - timedelta(minutes=1))

    def text(self, text: str) -> str:
        return expand(text, self.now)

    def data(self, text: str) -> Any:
        """JSON with its dates and records filled in."""
        return json.loads(REFERENCE.sub(lambda found: str(self.records[found[1]]), self.text(text)))

    def loaded(self, agent: str, at: datetime) -> dict[str, Any]:
        """What a session of this agent had in its prompt."""
        types = (None, *CONCERNS.get(agent, ()))
        rows = [row for row in self.known.values() if row.agent in (None, agent) and row.entity_type in types]
        rows.sort(key=lambda row: (row.type, str(row.id)))
        for row in rows:
            self.used.setdefault(row.id, []).append(at)
        text = "\n".join(row.content for row in rows)
        return {
            "row_ids": [str(row.id) for row in rows],
            "versions": [row.version for row in rows],
            "types": sorted({row.type for row in rows}),
            "sha256": sha256(text.encode()).hexdigest(),
            "token_count": len(text) // 4,
            "token_budget": 900,
        }


def load(name: str) -> Any:
    """A data file of the demo."""
    return json.loads((HERE / f"{name}.json").read_text(encoding="utf-8"))


def talks() -> Iterator[Talk]:
    """All conversations, file by file."""
    for place in sorted((HERE / "talks").iterdir(), key=lambda item: item.name):
        for talk in read_talks(place.read_text(encoding="utf-8")):
            talk.facts.setdefault("persona", place.name.removesuffix(".talk"))
            yield talk
