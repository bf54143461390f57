"""The recorded conversations and runs: files in which ids are names and times are relative, so equal everywhere."""

import json
import re
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

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


# A conversation is {talk, status, error, events}, with its second attempt after a rejection as `again`. A run is
# {run, cases}: for each conversation the status, events and verdict of its replay.
Recorded = dict[str, Any]


def read_talks() -> dict[str, Recorded]:
    """Every recorded conversation by its key."""
    return {row["talk"]: row for row in _read(TALKS_FILE)}


def read_runs() -> dict[str, Recorded]:
    """Every recorded run by its key."""
    return {row["run"]: row for row in _read(RUNS_FILE)}


def _read(path: Path) -> list[Recorded]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def to_line(recorded: Recorded) -> str:
    return json.dumps(recorded, ensure_ascii=False, separators=(",", ":"))


def to_names(world: World, key: str, value: Any) -> Any:
    """Replace this workspace's ids and times by names and distances. A new id is named after `key`."""
    known = {str(ref): name for name, ref in world.refs.items()}

    def convert(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: None if name == HASH_KEY else convert(inner) for name, inner in value.items()}
        if isinstance(value, list):
            return [convert(inner) for inner in value]
        return _text_to_names(world, key, value, known) if isinstance(value, str) else value

    return convert(value)


def _text_to_names(world: World, key: str, text: str, known: dict[str, str]) -> str:
    def name(found: re.Match[str]) -> str:
        if found[0] not in known:
            known[found[0]] = world.add_ref(f"new.{key}", UUID(found[0]))
        return f"ref:{known[found[0]]}"

    def offset(found: re.Match[str]) -> str:
        return f"{{at {(datetime.fromisoformat(found[0]) - world.now).total_seconds():.6f}}}"

    def days_ago(found: re.Match[str]) -> str:
        try:
            return f"{{iso {(world.now.date() - date.fromisoformat(found[0])).days}}}"
        except ValueError:
            return found[0]

    return DAY.sub(days_ago, TIME.sub(offset, ID.sub(name, _without_mark(text))))


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
