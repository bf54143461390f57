"""The labelled knowledge in tests/data/hygiene, as the checks take it, and how well they agree with it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cache
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

from app.learning.hygiene import checks
from app.learning.hygiene.checks import Finding, Named, Row, World
from app.text import embeddings
from app.text.embeddings import embed

DATA = Path(__file__).resolve().parents[1] / "tests/data/hygiene"
OF_PAIRS = ("duplicate", "contradiction")
OF_ROWS = ("vague", "unscoped", "addresses the model", "hidden", "stale")


@dataclass(frozen=True)
class Score:
    """`wrong` holds the texts on which check and label differ."""

    right: int
    missed: int
    false: int
    wrong: tuple[str, ...] = ()

    @property
    def f1(self) -> float:
        return 2 * self.right / (2 * self.right + self.missed + self.false) if self.right else 0.0


def lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / name).read_text("utf-8").splitlines()]


def id_of(slug: str | None) -> UUID | None:
    return uuid5(NAMESPACE_URL, slug) if slug else None


@cache
def world() -> tuple[World, date]:
    given = json.loads((DATA / "world.json").read_text("utf-8"))
    tools: dict[str, frozenset[UUID]] = {}
    for agent in given["agents"]:
        for tool in [] if agent.get("archived") else agent["tools"]:
            tools[tool] = tools.get(tool, frozenset()) | {name_entry(agent).id}
    types = given["entity_types"]
    return World(
        agents=[name_entry(one) for one in given["agents"]],
        entity_types=[name_entry(one) for one in types],
        fields=frozenset(name for one in types for name in one["fields"]),
        tools=tools,
        retired_tools=frozenset(given["retired_tools"]),
    ), date.fromisoformat(given["today"])


def name_entry(given: dict[str, Any]) -> Named:
    return Named(uuid5(NAMESPACE_URL, given["slug"]), given["slug"], given["name"], given.get("archived", False))


def row(given: dict[str, Any], row_id: str = "row") -> Row:
    since = world()[1] - timedelta(days=given["active_days"]) if "active_days" in given else None
    return Row(
        given["content"],
        given.get("context"),
        uuid5(NAMESPACE_URL, row_id),
        id_of(given.get("agent")),
        id_of(given.get("entity_type")),
        given.get("state", "active"),
        since,
        given.get("injected", 0),
    )


@cache
def vector_of(text: str) -> list[float]:
    return embed([text])[0]


def nearness(a: Row, b: Row) -> float:
    return embeddings.nearness(vector_of(a.content), [vector_of(b.content)])[0]


def check_row(row: Row, others: Iterable[Row], world: World, today: date) -> list[Finding]:
    """Everything that is wrong with one row: by itself, and beside others."""
    clashes = (checks.compare(row, other, nearness(row, other)) for other in others)
    return [*checks.check_alone(row, world, today), *filter(None, clashes)]


@cache
def pairs(split: str) -> tuple[tuple[str, Row, Row], ...]:
    found = []
    for given in lines("pairs.jsonl"):
        if given["split"] == split:
            found.append((given["label"], row(given["a"], "a"), row(given["b"], "b")))
    return tuple(found)


def score_rows(check: str, split: str) -> Score:
    ground, today = world()
    judged = []
    for given in lines("rows.jsonl"):
        if given["check"] == check and given["split"] == split:
            found = checks.check_alone(row(given["row"]), ground, today)
            judged.append((given["label"], check in {one.check for one in found}, given["row"]["content"]))
    return score(judged)


def score_pairs(check: str, split: str) -> Score:
    judged = []
    for label, a, b in pairs(split):
        found = [one.check for one in check_row(a, [b], World(), world()[1]) if one.other_id]
        judged.append((label == check, check in found, f"{a.content} | {b.content}"))
    return score(judged)


def score_of(check: str, split: str) -> Score:
    return score_pairs(check, split) if check in OF_PAIRS else score_rows(check, split)


def score(judged: Iterable[tuple[bool, bool, str]]) -> Score:
    rows = list(judged)
    return Score(
        sum(label and found for label, found, _ in rows),
        sum(label and not found for label, found, _ in rows),
        sum(found and not label for label, found, _ in rows),
        tuple(text for label, found, text in rows if label != found),
    )
