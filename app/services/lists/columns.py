"""The columns of lists: which of them a person sees, and which say the same in every row."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from sqlalchemy import Text, delete, select
from sqlalchemy.dialects.postgresql import insert

from app.actor import Actor
from app.db import db
from app.db.queries import ASKING, Query, value
from app.errors import Invalid, NotFound
from app.models.people import ListColumns

# By list, the columns that can be switched off: what each is called, and the attributes of a row that it shows. What a
# row is about and its age are always shown.
COLUMNS: dict[str, dict[str, tuple[str, tuple[str, ...]]]] = {
    "conversations": {
        "person": ("Person", ("person_id", "person")),
        "agent": ("Agent", ("agent", "agent_version")),
        "turns": ("Turns", ("turns",)),
        "feedback": ("Feedback", ("positive", "negative", "neutral")),
    },
    "sessions": {
        "status": ("Status", ("status",)),
        "agent": ("Agent", ("agent", "agent_version")),
        "type": ("Type", ("session_type",)),
        "model": ("Model", ("model",)),
        "feedback": ("Feedback", ("positive", "negative", "neutral")),
        "took": ("Took", ("duration_ms",)),
        "tokens": ("Tokens", ("input_tokens", "output_tokens")),
        "cost": ("Cost", ("cost",)),
    },
    "feedback": {
        "rating": ("Rating", ("rating",)),
        "source": ("Source", ("source_type",)),
        "agent": ("Agent", ("agent", "agent_version")),
        "from": ("From", ("origin", "author_id", "author")),
        "assignee": ("Assigned to", ("assignee_id",)),
    },
    "patterns": {
        "severity": ("Severity", ("severity",)),
        "agent": ("Agents", ("agents",)),
        "rows": ("Rows", ("count",)),
        "people": ("People", ("people",)),
        "weeks": ("12 weeks", ("id",)),
        "rule": ("Rule", ("proposal_state", "rejected")),
    },
}


@dataclass(frozen=True)
class ColumnChoice:
    """The columns that a person switched off. Those with one value in every row hide themselves unless `keeps_same`."""

    hidden: frozenset[str] = frozenset()
    keeps_same: bool = False

    @classmethod
    def stored(cls, hidden: Collection[str] | None, keeps_same: bool | None) -> "ColumnChoice":
        return cls(frozenset(hidden or ()), bool(keeps_same))


@Query
def find_choice() -> Any:
    mine = ListColumns.tenant_id == ASKING.tenant_id, ListColumns.user_id == ASKING.id
    return select(ListColumns.hidden, ListColumns.keeps_same).where(*mine, ListColumns.list == value("list", Text))


def get_choice(name: str, *, actor: Actor) -> ColumnChoice:
    rows = find_choice(actor, list=name)
    return ColumnChoice.stored(*rows[0]) if rows else ColumnChoice()


def save_choice(name: str, shown: Collection[str], *, keeps_same: bool, actor: Actor) -> ColumnChoice:
    """Keep the columns that a person wants to see. Not audited: it changes only what they see."""
    known = _columns_of(name)
    if unknown := set(shown) - known.keys():
        raise Invalid(f"There is no column {min(unknown)[:40]!r} in this list.")
    choice = ColumnChoice(frozenset(known.keys() - set(shown)), keeps_same)
    chosen = {"hidden": sorted(choice.hidden), "keeps_same": keeps_same}
    row = insert(ListColumns).values(tenant_id=actor.tenant_id, user_id=actor.id, list=name, **chosen)
    db.session.execute(row.on_conflict_do_update(index_elements=["tenant_id", "user_id", "list"], set_=chosen))
    return choice


def reset_choice(name: str, *, actor: Actor) -> None:
    _columns_of(name)
    mine = ListColumns.tenant_id == actor.tenant_id, ListColumns.user_id == actor.id
    db.session.execute(delete(ListColumns).where(*mine, ListColumns.list == name))


def _columns_of(name: str) -> dict[str, tuple[str, tuple[str, ...]]]:
    if name not in COLUMNS:
        raise NotFound("There is no such list.")
    return COLUMNS[name]


def find_same(name: str, rows: Sequence[Any]) -> frozenset[str]:
    """The columns that have one value in every row. A single row has no such columns: nothing is repeated."""
    if len(rows) < 2:
        return frozenset()
    return frozenset(column for column, (_, shown) in COLUMNS[name].items() if _is_same(rows, attrgetter(*shown)))


def _is_same(rows: Sequence[Any], value_of: Any) -> bool:
    first = value_of(rows[0])
    return all(value_of(row) == first for row in rows)
