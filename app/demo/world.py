"""The demo workspace while it is filled: its people, agents and records, the time of each step, and its recordings,
files in which ids are names and times are relative, so that they are equal everywhere."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from app.actor import Actor
from app.formats.ids import UUID_PATTERN
from app.learning.prompt import KEY_DIGITS, MARK_DIGITS
from app.services.agents import versions
from app.services.entities import criteria as criteria_store
from app.services.entities import store as entity_store
from app.services.workspaces import people
from app.services.workspaces import store as workspace_store

DATA = Path(__file__).with_name("data")
TALKS_FILE = DATA / "recorded.ndjson"
RUNS_FILE = DATA / "replayed.ndjson"
ID = re.compile(rf"\b{UUID_PATTERN.pattern}\b")
TIME = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00:00)")
DAY = re.compile(r"\b\d{4}-\d\d-\d\d\b")
REFERENCE = re.compile(r"ref:([a-z0-9_.-]*[a-z0-9])|\{at (-?[\d.]+)\}|\{iso (-?\d+)\}")
# The mark around knowledge in a prompt and the hash of the prompt differ in every workspace.
HASH_KEY = "sha256"
MARK = re.compile(r"(?<=workspace-knowledge )[0-9a-f]{32}(?=>>>)")
# A conversation is {talk, status, error, events}, with its second attempt after a rejection as `again`. A run is
# {run, cases}: for each conversation the status, events and verdict of its replay.
Recorded = dict[str, Any]
ENTITY_TYPES = ("fiscal-year", "ltm", "contact", "company", "deal")
# Working days before now, older than every conversation.
TYPES_CREATED, CRITERIA_CREATED, RECORDS_CREATED = "44d 09:00", "44d 11:00", "43d 08:00"
DATE = re.compile(r"\{iso (-?\d+)\}")
MINUTES = {"m": 1, "h": 60}
SATURDAY = 5
LONGEST_ANSWER_MS = 6000
# An effect follows its result at once, and so does the end the last answer.
AT_ONCE_MS = 6
Events = Sequence[tuple[str, dict[str, Any]]]


@dataclass(frozen=True)
class Talk:
    """One conversation: who asks which agent what and when. `turns` has each prompt and what people do after it."""

    key: str
    persona: str
    agent: str
    person: str
    when: str
    turns: list[dict[str, Any]]
    type: str = "chat"
    output: str | None = None
    entity: str | None = None
    stopped: bool = False

    @property
    def prompts(self) -> list[str]:
        return [turn["prompt"] for turn in self.turns]


@dataclass
class World:
    """State of the demo. `refs` has the id of everything that recorded events mention, by a name that never changes.
    `labels` are feedback ids that knowledge refers to, `waiting` those that a rule will apply, by the rule's key, and
    `used` the times at which a row of knowledge was in a prompt."""

    now: datetime
    system: Actor
    people: dict[str, Actor] = field(default_factory=dict)
    refs: dict[str, UUID] = field(default_factory=dict)
    record_types: dict[str, str] = field(default_factory=dict)
    versions: dict[str, list[str]] = field(default_factory=dict)
    labels: dict[str, UUID] = field(default_factory=dict)
    waiting: dict[str, list[UUID]] = field(default_factory=dict)
    used: dict[UUID, list[datetime]] = field(default_factory=dict)

    def at(self, when: str) -> datetime:
        return resolve_time(when, self.now)

    def past(self, at: datetime) -> datetime:
        """Nothing in the demo happens in the future."""
        return min(at, self.now - timedelta(minutes=1))

    def add_ref(self, prefix: str, ref: UUID) -> str:
        """Give an id the next name of a kind."""
        name = f"{prefix}.{sum(known.startswith(f'{prefix}.') for known in self.refs) + 1}"
        self.refs[name] = ref
        return name

    def text(self, text: str) -> str:
        return fill_dates(text, self.now)

    def version_at(self, slug: str, when: str) -> int:
        """The version of an agent that was current at that moment."""
        return sum(sort_key(since) <= sort_key(when) for since in self.versions[slug])

    def actor(self, talk: Talk) -> Actor:
        """The person of a conversation, as the agent acts for them."""
        return replace(self.people[talk.person], agent_id=self.refs[f"agent.{talk.agent}"])


def load_data(name: str) -> Any:
    return json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))


def load_talks() -> Iterator[Talk]:
    """All conversations, file by file."""
    for path in sorted((DATA / "talks").iterdir()):
        for number, entry in enumerate(json.loads(path.read_text(encoding="utf-8")), 1):
            yield Talk(key=f"{path.stem}-{number:03}", persona=path.stem, **entry)


def set_up(world: World) -> None:
    """Create what exists before the first conversation: people, agents and records."""
    _add_people(world)
    _add_agents(world)
    _add_records(world)


def _add_people(world: World) -> None:
    for person in load_data("people"):
        user = people.create_person(email=person["email"], name=person["name"], role=person["role"], actor=world.system)
        world.people[person["key"]] = Actor(user.id, world.system.tenant_id, person["role"], user.name)
        world.refs[f"person.{person['key']}"] = user.id


def _add_agents(world: World) -> None:
    owner = world.people["owner"]
    for entry in load_data("agents"):
        first, *later = entry["versions"]
        agent = versions.ensure_agent(
            entry["slug"],
            actor=owner,
            name=entry["name"],
            kind="builtin",
            description=entry["description"],
            config=first["config"],
            created_at=world.at(first["when"]),
        )
        world.refs[f"agent.{agent.slug}"] = agent.id
        world.versions[agent.slug] = [version["when"] for version in entry["versions"]]
        for version in later:
            versions.save_version(agent.id, version["config"], actor=owner, created_at=world.at(version["when"]))
    review = versions.find_agent(workspace_store.REVIEW_AGENT, actor=world.system)
    if review is not None:
        world.people["review"] = replace(world.system, agent_id=review.id, name=review.name)
        world.refs[f"agent.{review.slug}"] = review.id


def _add_records(world: World) -> None:
    data = load_data("entities")
    owner = world.people["owner"]
    for entry in data["types"]:
        row = entity_store.create_type(**entry, actor=owner, created_at=world.at(TYPES_CREATED))
        world.refs[f"type.{row.slug}"] = row.id
    for entry in data["criteria_sets"]:
        criteria = criteria_store.create_criteria_set(**entry, actor=owner, created_at=world.at(CRITERIA_CREATED))
        world.refs[f"criteria.{criteria.slug}"] = criteria.id
    at = world.at(RECORDS_CREATED)
    for kind in ENTITY_TYPES:
        for entry in data[kind]:
            fields = {name: world.text(value) if isinstance(value, str) else value for name, value in entry.items()}
            ref, name = f"record.{fields.pop('key')}", fields.pop("name")
            at += timedelta(minutes=1)
            entity = entity_store.create_entity(entity_type=kind, name=name, fields=fields, actor=owner, created_at=at)
            world.refs[ref], world.record_types[ref] = entity.id, kind


def sort_key(when: str) -> tuple[int, float]:
    """The place of a moment in the order of all, whatever today is."""
    span, _, clock = when.partition(" ")
    if not clock:
        return 0, -int(span[:-1]) * MINUTES[span[-1]]
    hour, minute = clock.split(":")
    return -int(span[:-1]), int(hour) * 60 + int(minute)


def resolve_time(when: str, now: datetime) -> datetime:
    """Resolve `3h`, `25m`, or `2d 09:40`: two working days ago at that time of day."""
    span, _, clock = when.partition(" ")
    if not clock:
        return now - timedelta(minutes=int(span[:-1]) * MINUTES[span[-1]])
    day = now
    for _ in range(int(span[:-1])):
        day -= timedelta(days=1)
        while day.weekday() >= SATURDAY:
            day -= timedelta(days=1)
    hour, minute = clock.split(":")
    return datetime.combine(day.date(), time(int(hour), int(minute), 7), now.tzinfo)


def fill_dates(text: str, now: datetime) -> str:
    """Replace each `{iso n}` by the date n days ago."""
    return DATE.sub(lambda found: (now - timedelta(days=int(found[1]))).date().isoformat(), text)


def assign_times(events: Events, began: datetime) -> tuple[list[datetime], int]:
    """Return the time of each event, and the agent's working time in milliseconds. Equal events get equal times."""
    at, work, prompts = began, 0, 0
    times: list[datetime] = []
    for kind, payload in events:
        spent = _duration_ms(kind, payload) if times else 0
        if kind == "user.message":
            prompts += 1
            at += timedelta(seconds=40 + len(payload["text"]) % 90 if prompts > 1 else 0)
        at += timedelta(milliseconds=spent)
        work += spent
        times.append(at)
    return times, work


def _duration_ms(kind: str, payload: dict[str, Any]) -> int:
    size = len(str(payload))
    if kind == "tool.call":
        return 380 + 7 * size % 420
    if kind == "tool.result":
        return 60 + 11 * size % 340
    if kind == "agent.message":
        return 520 + min(9 * len(payload["text"]), LONGEST_ANSWER_MS)
    return 0 if kind == "user.message" else AT_ONCE_MS


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
