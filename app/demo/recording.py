"""The recorded conversations and runs: files in which ids are names and times are relative, so equal everywhere."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID

from app.demo.script import Events
from app.demo.world import DATA, World
from app.learning.prompt import KEY_DIGITS, MARK_DIGITS

TALKS_FILE = DATA / "recorded.ndjson"
RUNS_FILE = DATA / "replayed.ndjson"
ID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
TIME = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00:00)")
DAY = re.compile(r"\b\d{4}-\d\d-\d\d\b")
REFERENCE = re.compile(r"ref:([a-z0-9_.-]*[a-z0-9])|\{at (-?[\d.]+)\}|\{iso (-?\d+)\}")
# The mark around knowledge in a prompt and the hash of the prompt differ in every workspace.
HASH_KEY = "sha256"
MARK = re.compile(r"(?<=workspace-knowledge )[0-9a-f]{32}(?=>>>)")


@dataclass
class RecordedTalk:
    """How a conversation went. `again` is the second attempt after a rejection."""

    talk: str
    status: str = "completed"
    error: str | None = None
    events: Events = field(default_factory=list)
    again: RecordedTalk | None = None

    def line(self) -> str:
        return _dump(self._as_dict())

    def _as_dict(self) -> dict[str, Any]:
        again = {"again": self.again._as_dict()} if self.again else {}
        return {"talk": self.talk, "status": self.status, "error": self.error, "events": self.events, **again}


@dataclass
class RecordedCase:
    """How one golden was replayed: its events, and the verdict on them."""

    status: str
    events: Events
    result: dict[str, Any]


@dataclass
class RecordedRun:
    """How a run went, case by case."""

    run: str
    cases: dict[str, RecordedCase] = field(default_factory=dict)

    def line(self) -> str:
        cases = {talk: [case.status, case.events, case.result] for talk, case in self.cases.items()}
        return _dump({"run": self.run, "cases": cases})


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def read_talks() -> dict[str, RecordedTalk]:
    """Every recorded conversation by its key."""
    lines = TALKS_FILE.read_text(encoding="utf-8").splitlines()
    found = [_parse_talk(json.loads(line)) for line in lines]
    return {one.talk: one for one in found}


def _parse_talk(given: dict[str, Any]) -> RecordedTalk:
    again = _parse_talk(given["again"]) if "again" in given else None
    return RecordedTalk(given["talk"], given["status"], given["error"], _parse_events(given["events"]), again)


def read_runs() -> dict[str, RecordedRun]:
    """Every recorded run by its key."""
    found = {}
    for line in RUNS_FILE.read_text(encoding="utf-8").splitlines():
        given = json.loads(line)
        cases = {
            talk: RecordedCase(status, _parse_events(events), result)
            for talk, (status, events, result) in given["cases"].items()
        }
        found[given["run"]] = RecordedRun(given["run"], cases)
    return found


def _parse_events(given: list[list[Any]]) -> Events:
    return [(kind, payload) for kind, payload in given]


def to_names(world: World, key: str, value: Any) -> Any:
    """Replace this workspace's ids and times by names and distances. A new id is named after `key`."""
    known = {str(ref): name for name, ref in world.refs.items()}

    def convert(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: None if name == HASH_KEY else convert(inner) for name, inner in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(convert(inner) for inner in value)
        return _text_to_names(world, key, value, known) if isinstance(value, str) else value

    return convert(value)


def _text_to_names(world: World, key: str, text: str, known: dict[str, str]) -> str:
    def name(found: re.Match[str]) -> str:
        if found[0] not in known:
            new = f"new.{key}.{_count(world.refs, f'new.{key}.') + 1}"
            known[found[0]], world.refs[new] = new, UUID(found[0])
        return f"ref:{known[found[0]]}"

    def offset(found: re.Match[str]) -> str:
        return f"{{at {(datetime.fromisoformat(found[0]) - world.now).total_seconds():.6f}}}"

    def days_ago(found: re.Match[str]) -> str:
        try:
            return f"{{iso {(world.now.date() - date.fromisoformat(found[0])).days}}}"
        except ValueError:
            return found[0]

    return DAY.sub(days_ago, TIME.sub(offset, ID.sub(name, _without_mark(text))))


def _count(names: Iterable[str], prefix: str) -> int:
    return sum(name.startswith(prefix) for name in names)


def _without_mark(text: str) -> str:
    found = MARK.search(text)
    return MARK.sub("0" * MARK_DIGITS, text).replace(found[0][:KEY_DIGITS], "0" * KEY_DIGITS) if found else text


def to_ids(world: World, value: Any) -> Any:
    """Replace names and distances by the ids and times of this workspace."""
    if isinstance(value, dict):
        return {name: to_ids(world, inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [to_ids(world, inner) for inner in value]
    return REFERENCE.sub(lambda found: _resolve(world, found), value) if isinstance(value, str) else value


def _resolve(world: World, found: re.Match[str]) -> str:
    if found[1]:
        return str(world.refs[found[1]])
    if found[2]:
        moment = world.past(world.now + timedelta(seconds=float(found[2])))
        return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return (world.now - timedelta(days=int(found[3]))).date().isoformat()
