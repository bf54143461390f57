"""What a golden is held to changes by a revision that keeps what it was before, and in no other way."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest
from psycopg import errors

from tests.db.rows import Connection, Filled, acting, fill, one
from tests.db.test_triggers import MARK, as_it_was

pytestmark = pytest.mark.core

SAID = {"mentions": ["14.2"]}
AT = "2026-03-01T10:00:00+00:00"


@pytest.fixture
def golden(app_url: str) -> Filled:
    """A workspace whose session is golden, and held to something."""
    ours = fill(app_url)
    with acting(app_url, ours.tenant, ours.user, "system") as connection:
        put(connection, {**json.loads(MARK), "expected": SAID})
        connection.commit()
    return ours


def put(connection: Connection, golden: dict[str, Any]) -> None:
    connection.execute("UPDATE sessions SET metadata = %s::jsonb", (json.dumps({"golden": golden, "k": 1}),))


def stored(connection: Connection) -> dict[str, Any]:
    found: dict[str, Any] = one(connection, "SELECT metadata -> 'golden' FROM sessions")
    return found


def entry(ours: Filled, number: int = 1, **other: Any) -> dict[str, Any]:
    return {"number": number, "at": AT, "by": str(ours.user), "before": {"expected": SAID}, **other}


def changed(golden: dict[str, Any], added: Any, **judged: Any) -> dict[str, Any]:
    """The golden after a revision; without `judged` it is held to its recording again."""
    rest = {name: held for name, held in golden.items() if name != "expected"}
    return {**rest, **judged, "revisions": [*golden.get("revisions", []), added]}


def test_each_revision_keeps_what_was_before(app_url: str, golden: Filled) -> None:
    with acting(app_url, golden.tenant, golden.user, "system") as connection:
        now = {"expected": {"mentions": ["15"]}}
        put(connection, changed(stored(connection), entry(golden, reason="Wrong figure"), **now))
        put(connection, changed(stored(connection), entry(golden, 2, before=now), recorded_is_right=True))
        after = stored(connection)
        third = entry(golden, 3, before={"recorded_is_right": True}, at="2026-03-01T10:00:00.5+00:00")
        gone = {name: held for name, held in after.items() if name != "recorded_is_right"}
        put(connection, changed(gone, third))
        assert [one["number"] for one in stored(connection)["revisions"]] == [1, 2, 3]
        # The mark can still be edited and taken away, and a new one begins without a past.
        connection.execute("UPDATE sessions SET metadata = jsonb_set(metadata, '{golden,set}', '\"smoke\"')")
        past = stored(connection)
        connection.execute("UPDATE sessions SET metadata = metadata - 'golden'")
        with pytest.raises(errors.CheckViolation), connection.transaction():
            put(connection, past)
        put(connection, json.loads(MARK))


def test_a_revision_withstands_every_attack(app_url: str, golden: Filled) -> None:
    with acting(app_url, golden.tenant, golden.user, "system") as connection:
        first = stored(connection)
        put(connection, changed(first, entry(golden), expected={"mentions": ["15"]}))
        now, past = stored(connection), {"expected": {"mentions": ["15"]}}
        good = entry(golden, 2, before=past)
        new = {"expected": {"mentions": ["16"]}}

        def with_past(*revisions: Any) -> dict[str, Any]:
            return {**now, **new, "revisions": list(revisions)}

        kept = now["revisions"][0]
        attacks: list[dict[str, Any]] = [
            # Nothing is appended, or not only one.
            {**now, **new},
            {**now, "recorded_is_right": True},
            {name: held for name, held in now.items() if name != "expected"},
            {name: held for name, held in now.items() if name != "revisions"},
            with_past(),
            with_past(kept),
            with_past(good),
            with_past(kept, good, {**good, "number": 3}),
            with_past(good, kept),
            {**now, "revisions": {"0": kept, "1": good}},
            {**now, **new, "revisions": None},
            # What was there is written anew.
            with_past({**kept, "reason": "Another"}, good),
            with_past({**kept, "before": {}}, good),
            with_past({**kept, "number": 1.0}, good),
            # The entry says something else than what happened.
            changed(now, {**good, "before": {"expected": SAID}}, **new),
            changed(now, {**good, "before": {}}, **new),
            changed(now, {**good, "number": 3}, **new),
            changed(now, {**good, "number": "2"}, **new),
            changed(now, {**good, "by": str(golden.tenant)}, **new),
            changed(now, {**good, "by": None}, **new),
            changed(now, {**good, "at": "yesterday"}, **new),
            changed(now, {**good, "at": "2026-02-01T10:00:00+00:00"}, **new),
            changed(now, {**good, "at": "2026-03-01T12:00:00+02:00"}, **new),
            changed(now, {**good, "extra": 1}, **new),
            changed(now, {**good, "reason": 1}, **new),
            changed(now, {**good, "reason": "x" * 2001}, **new),
            changed(now, {name: held for name, held in good.items() if name != "at"}, **new),
            *(changed(now, odd, **new) for odd in (None, 1, "x", [], {})),
            # Nothing changes, or what it is held to is no such thing.
            changed(now, good, **past),
            changed(now, good, expected={"mentions": ["15"]}, recorded_is_right=True),
            changed(now, good, **new, baseline_rejected=True),
            changed(now, good, expected={}),
            changed(now, good, expected=["x"]),
            changed(now, good, recorded_is_right="yes"),
            changed(now, good, baseline_rejected=False),
            # Something else changes along with it.
            {**changed(now, good, **new), "set": "smoke"},
            {**changed(now, good, **new), "note": "x"},
            {**changed(now, good, **new), "sha256": "ab" * 32},
            {**changed(now, good, **new), "snapshot": {"turns": ["Bye"]}},
            {**changed(now, good, **new), "more": 1},
            # More than a golden keeps.
            changed(now, good, expected={"answer": "x" * 10}) | {"revisions": [kept, {**good, "reason": "é" * 2001}]},
        ]
        before = as_it_was(connection)
        for attack in attacks:
            with pytest.raises(errors.CheckViolation), connection.transaction():
                put(connection, attack)
        whole = {"golden": changed(now, good, **new), "k": 1}
        for column in ("title = 'x'", "model = 'x'", "event_count = 9", "status = 'failed'", "created_at = now()"):
            with pytest.raises(errors.CheckViolation), connection.transaction():
                connection.execute(f"UPDATE sessions SET metadata = %s::jsonb, {column}", (json.dumps(whole),))
        with pytest.raises(errors.CheckViolation), connection.transaction():
            connection.execute("UPDATE sessions SET metadata = %s::jsonb", (json.dumps({**whole, "k": 2}),))
        assert as_it_was(connection) == before
        put(connection, changed(now, good, **new))


def test_the_past_of_a_golden_is_bounded(app_url: str, golden: Filled) -> None:
    with acting(app_url, golden.tenant, golden.user, "system") as connection:
        with connection.transaction(force_rollback=True):
            for number in range(1, 102):
                before = {"expected": stored(connection)["expected"]}
                following = changed(
                    stored(connection), entry(golden, number, before=before), expected={"mentions": [str(number)]}
                )
                if number <= 100:
                    put(connection, following)
            with pytest.raises(errors.CheckViolation), connection.transaction():
                put(connection, following)
        long = {"answer": "x" * 600_000}
        short = {"answer": "y"}
        for number, (before, after) in enumerate(((SAID, long), (long, short), (short, long)), 1):
            added = entry(golden, number, before={"expected": before})
            put(connection, changed(stored(connection), added, expected=after))
        added = entry(golden, 4, before={"expected": long})
        with pytest.raises(errors.CheckViolation), connection.transaction():
            put(connection, changed(stored(connection), added, recorded_is_right=True))


def test_nobody_writes_a_revision_for_someone_else(app_url: str, superuser_url: str, golden: Filled) -> None:
    other = fill(app_url)
    with acting(app_url, golden.tenant, other.user, "system") as connection:
        forged = changed(stored(connection), entry(golden), recorded_is_right=True)
        with pytest.raises(errors.CheckViolation):
            put(connection, forged)
    attack = "UPDATE sessions SET metadata = metadata #- '{golden,expected}' WHERE id = %s"
    with psycopg.connect(superuser_url) as connection, pytest.raises(errors.CheckViolation):
        connection.execute(attack, (golden["sessions"],))
