"""What the demo's conversations happen in: who is there, which records there are, and what each is called here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from importlib.resources import files
from typing import Any
from uuid import UUID

from app.actor import Actor
from app.demo.talks import Talk, expand, moment, place_of, read_talks

HERE = files("app.demo")


@dataclass
class World:
    """`refs` are the ids of everything that recorded events speak of, by names that stay the same."""

    now: datetime
    system: Actor
    people: dict[str, Actor] = field(default_factory=dict)
    refs: dict[str, UUID] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    versions: dict[str, list[str]] = field(default_factory=dict)
    labels: dict[str, UUID] = field(default_factory=dict)
    waiting: dict[str, list[UUID]] = field(default_factory=dict)
    used: dict[UUID, list[datetime]] = field(default_factory=dict)

    def at(self, when: str) -> datetime:
        return moment(when, self.now)

    def past(self, at: datetime) -> datetime:
        """Nothing of the demo happens in the future."""
        return min(at, self.now - timedelta(minutes=1))

    def text(self, text: str) -> str:
        return expand(text, self.now)

    def version(self, talk: Talk) -> int:
        """The version of its agent that was current when a conversation began."""
        begun = place_of(talk.when)
        return sum(place_of(since) <= begun for since in self.versions[talk.agent])

    def actor(self, talk: Talk) -> Actor:
        """The person of a conversation, as the agent acts for them."""
        person = self.people[talk.person]
        return Actor(person.id, person.tenant_id, person.role, person.name, agent_id=self.refs[f"agent.{talk.agent}"])


def load(name: str) -> Any:
    """A data file of the demo."""
    return json.loads((HERE / f"{name}.json").read_text(encoding="utf-8"))


def talks() -> Iterator[Talk]:
    """All conversations, file by file."""
    for place in sorted((HERE / "talks").iterdir(), key=lambda item: item.name):
        yield from read_talks(place.read_text(encoding="utf-8"), place.name.removesuffix(".talk"))
