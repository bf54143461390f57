"""Compare stored sessions: load them, whole or clipped, judge one by the other, and load what a diff page shows."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any
from uuid import UUID

from sqlalchemy import Text, cast, func, select

from app.actor import Actor
from app.db import db, run
from app.errors import NotFound
from app.evals.compare import align
from app.evals.compare.calls import pair_effects
from app.evals.compare.clipping import WHOLE_BYTES, LoadedEvents, TooDense, read_events
from app.evals.compare.effects import RESPONSE, Effect
from app.evals.compare.sessions import OPEN_STATUSES, Comparison, Golden, compare
from app.evals.expected.expectations import read_expected
from app.evals.trace import Run, last_message
from app.evals.verdict import Policy
from app.formats.ids import parse_id
from app.models import Agent, AgentSession, AgentVersion, CriteriaSet
from app.services.evals.golden_lists import row_contents
from app.services.sessions.event_windows import iterate_events
from app.text.embeddings import embed, nearness_of
from app.text.similarity import Nearness
from app.text.values import Reader, differences, leaves

LOAD_EVENTS = """
SELECT session_id, event_type, payload::text, sequence FROM session_events
 WHERE tenant_id = %(tenant)s AND session_id = ANY (%(sessions)s::uuid[])
 ORDER BY session_id, occurred_at, sequence
"""


def compare_sessions(golden_id: UUID, replay_id: UUID, *, actor: Actor, policy: Policy | None = None) -> Comparison:
    """The verdict on the second session, measured by the first. If that is no golden, its recording counts."""
    golden, replay = load_run(golden_id, replay_id, actor=actor)
    return compare(golden, replay, nearness(), policy)


@cache
def nearness() -> Nearness:
    """How near texts are in meaning, for all comparisons of this process."""
    return nearness_of(embed)


def load_sessions(*session_ids: UUID, actor: Actor) -> dict[UUID, Any]:
    """Sessions by id, with what comparing and showing them needs; `who` names the agent and its version."""
    wanted = set(session_ids)
    found = db.session.execute(
        select(
            AgentSession.id, AgentSession.title, AgentSession.created_at, AgentSession.session_type,
            AgentSession.output_type, AgentSession.status, AgentSession.meta, AgentSession.event_bytes,
            AgentSession.truncated, AgentSession.golden_set, AgentSession.eval_source, AgentSession.eval_run_id,
            AgentSession.agent_id, AgentSession.agent_version_id,
            (Agent.slug + func.coalesce(" v" + cast(AgentVersion.version, Text), "")).label("who"),
        )
        .join(Agent, (Agent.tenant_id == AgentSession.tenant_id) & (Agent.id == AgentSession.agent_id))
        .outerjoin(AgentVersion, AgentVersion.id == AgentSession.agent_version_id)
        .where(AgentSession.tenant_id == actor.tenant_id, AgentSession.id.in_(wanted))
    ).all()  # fmt: skip
    if len(found) < len(wanted):
        raise NotFound("There is no such session in this workspace.")
    return {row.id: row for row in found}


def load_run(
    golden_id: UUID, replay_id: UUID, *, actor: Actor, rows: Mapping[UUID, Any] | None = None
) -> tuple[Golden, Run]:
    """Both sessions as the comparer reads them, events in order of time. `rows` are the sessions if already loaded."""
    rows = rows or load_sessions(golden_id, replay_id, actor=actor)
    loaded = load_events({one: rows[one].event_bytes for one in (golden_id, replay_id)}, actor=actor)
    golden, replay = (_as_run(rows[one], loaded[one]) for one in (golden_id, replay_id))
    marks = rows[golden_id].meta.get("golden") or {}
    return golden_of(golden, marks, None if _frozen_criteria(marks) else criteria_of(golden, actor)), replay


def _as_run(row: Any, found: LoadedEvents) -> Run:
    loaded = next((event.payload for event in found.events if event.event_type == "context.loaded"), {})
    snapshot = (row.meta.get("golden") or {}).get("snapshot") or {}
    given = row.meta.get("tools") or loaded.get("tools") or snapshot.get("tools")
    return found.as_run(row.session_type, row.output_type, given if isinstance(given, list) else (), row.status)


def golden_of(recorded: Run, marks: Mapping[str, Any], criteria: Mapping[str, Any] | None = None) -> Golden:
    """A golden as the comparer takes it, with what promoting froze; `criteria` apply where it froze none."""
    criteria = _frozen_criteria(marks) or criteria
    return Golden(recorded, read_expected(marks.get("expected")), criteria, marks.get("baseline_rejected") is True)


def _frozen_criteria(marks: Mapping[str, Any]) -> Any:
    return ((marks.get("snapshot") or {}).get("criteria") or {}).get("dimensions")


def criteria_of(run: Run, actor: Actor) -> dict[str, Any] | None:
    """The criteria that the session's response was judged by."""
    submitted = (event.payload for event in run.events if event.event_type == "response.submitted")
    wanted = parse_id(next((named for payload in submitted if (named := payload.get("criteria_set_id"))), None))
    if wanted is None:
        return None
    return db.session.scalar(
        select(CriteriaSet.dimensions).where(CriteriaSet.tenant_id == actor.tenant_id, CriteriaSet.id == wanted)
    )


def load_events(sizes: Mapping[UUID, int], *, actor: Actor, clip: bool = False) -> dict[UUID, LoadedEvents]:
    """The events of sessions, by id, from their sizes in bytes. When one is large, all are clipped: only what was read
    alike can be compared. One query for all that are small."""
    if not clip and all(size <= WHOLE_BYTES for size in sizes.values()):
        rows: dict[UUID, list[tuple[str, str, int]]] = defaultdict(list)
        wanted = {"tenant": actor.tenant_id, "sessions": f"{{{','.join(map(str, sizes))}}}"}
        for session_id, *event in run(LOAD_EVENTS, wanted):
            rows[session_id].append((event[0], event[1], event[2]))
        try:
            return {one: read_events(rows[one], clip=False) for one in sizes}
        except TooDense:
            pass
    windows = {session_id: iterate_events(session_id, actor=actor, as_text=True) for session_id in sizes}
    return {
        session_id: read_events(((one.event_type, one.payload, one.sequence) for one in events), clip=True)
        for session_id, events in windows.items()
    }


MAX_ANSWER_CHARS = 8_000
MAX_EFFECTS = 50
MAX_ROWS = 200
MAX_OTHERS = 12


@dataclass(frozen=True)
class EffectPair:
    """What both changed, or only one of them. `differs` names what is not the same."""

    golden: Effect | None
    replay: Effect | None
    differs: list[str]

    @property
    def same(self) -> bool:
        return self.golden is not None and self.replay is not None and not self.differs

    @property
    def key(self) -> str:
        """Equal for two pairs with the same effect of the golden, or with the same added effect."""
        one = self.golden or self.replay
        return f"{self.golden is None} {one.kind} {one.type} {one.print}" if one else ""


def load_diff(golden_id: UUID, replay_id: UUID, before_id: UUID | None = None, *, actor: Actor) -> dict[str, Any]:
    """Both sessions, aligned. `stored` says that the verdict is the one that the replay ended with, `is_case` that the
    second is a replay of the first, `still_running` that nothing can be judged yet. With an earlier replay of the same
    golden `before` holds the same of it. Three queries, and two for the earlier replay."""
    sides = load_sessions(golden_id, replay_id, *((before_id,) if before_id else ()), actor=actor)
    golden = sides[golden_id]
    found = _load_pair(golden_id, replay_id, sides, actor)
    before = None
    if before_id and sides[before_id].eval_source != str(golden_id):
        raise NotFound("There is no such replay of this golden.")
    if before_id and not found["still_running"]:
        before = _load_pair(golden_id, before_id, sides, actor)
        before = None if before["still_running"] else before
    recorded, replayed = found.pop("runs")
    return {
        "golden": golden,
        **found,
        "before": before,
        "knowledge": _knowledge(golden.meta, recorded, replayed, actor),
    }


def _load_pair(golden_id: UUID, replay_id: UUID, sides: Mapping[UUID, Any], actor: Actor) -> dict[str, Any]:
    """A golden and one other session, judged and aligned."""
    golden, replay = sides[golden_id], sides[replay_id]
    recorded, replayed = load_run(golden_id, replay_id, actor=actor, rows=sides)
    is_case = replay.eval_source == str(golden_id)
    still_running = golden.status in OPEN_STATUSES or replay.status in OPEN_STATUSES
    kept = replay.meta.get("eval_result") if is_case else None
    result = kept or compare(recorded, replayed, nearness()).as_json()
    effects = _effects(result)
    expected = read_expected((replay.meta.get("eval_golden") or {}).get("expected")) if kept else recorded.expected
    answers = expected.answer or last_message(recorded.run)[0], last_message(replayed)[0]
    return {
        "replay": replay,
        "result": result,
        "stored": bool(kept),
        "is_case": is_case,
        "still_running": still_running,
        "effects": effects[:MAX_EFFECTS],
        "effects_left": max(len(effects) - MAX_EFFECTS, 0),
        "rows": [] if still_running else align.align(recorded.run, replayed),
        "answer": (answers[0][:MAX_ANSWER_CHARS], answers[1][:MAX_ANSWER_CHARS]),
        "answer_cut": max(map(len, answers)) > MAX_ANSWER_CHARS,
        "expected": expected,
        "runs": (recorded.run, replayed),
    }


def _effects(result: Mapping[str, Any]) -> list[EffectPair]:
    """What both changed, paired as the verdict pairs it; what differs comes first."""
    given = result.get("effects") or {}
    golden, replay = ([_effect(one) for one in given.get(side) or ()] for side in ("golden", "replay"))
    pairs, lost, added = pair_effects(golden, replay)
    found = [EffectPair(a, b, _differs(a, b, result.get("dimensions") or {})) for a, b in pairs]
    found += [EffectPair(one, None, []) for one in lost] + [EffectPair(None, one, []) for one in added]
    return sorted(found, key=lambda pair: pair.same)


def _effect(given: Mapping[str, Any]) -> Effect:
    target, fields = (Reader().value(value) for value in (given.get("target"), given.get("fields") or {}))
    return Effect(str(given.get("kind")), str(given.get("type")), target, fields, int(given.get("sequence") or 0))


def _differs(a: Effect, b: Effect, judged: Mapping[str, Any]) -> list[str]:
    """What is not the same. Of a response that is what its criteria say: a value within its tolerance is."""
    paths = differences(a.leaves, b.leaves)
    names = dict.fromkeys("target" if path == ("target",) else str(path[1]) for path in paths if path)
    near = {name for name, one in judged.items() if one.get("passed")} if a.kind == b.kind == RESPONSE else ()
    return [name for name in names if name not in near]


def changed_arguments(golden: Any, replay: Any) -> set[str]:
    """The arguments on which two calls differ."""
    reader = Reader()
    a, b = (leaves(reader.value(one if isinstance(one, Mapping) else {"": one})) for one in (golden, replay))
    return {str(path[0]) for path in differences(a, b) if path}


def _knowledge(meta: Mapping[str, Any], before: Run, after: Run, actor: Actor) -> dict[str, Any] | None:
    """The knowledge rows that only one had in its prompt, as (id, content), and how many both had; None without any."""
    frozen = ((meta.get("golden") or {}).get("snapshot") or {}).get("shared_context") or {}
    contents = {str(row["id"]): str(row["content"]) for row in frozen.get("rows") or () if "id" in row}
    had, got = list(contents) or _loaded(before), _loaded(after)
    if not had and not got:
        return None
    only = {
        "only_golden": [one for one in had if one not in set(got)][:MAX_ROWS],
        "only_replay": [one for one in got if one not in set(had)][:MAX_ROWS],
    }
    missing = [one for side in only.values() for one in side if one not in contents and len(one) == 36]
    contents |= row_contents(missing, actor=actor)
    named = {name: [(one, contents.get(one, "a deleted row")) for one in side] for name, side in only.items()}
    return {**named, "both": len(set(had) & set(got))}


def _loaded(run: Run) -> list[str]:
    found: list[str] = []
    for event in run.events:
        if event.event_type == "context.loaded" and isinstance(event.payload.get("row_ids"), list):
            found += [str(one) for one in event.payload["row_ids"]]
    return list(dict.fromkeys(found))


def list_comparable(session_id: UUID, *, actor: Actor) -> list[Any]:
    """Sessions that this one could be compared with: of the same title first, then of the same agent."""
    mine = load_sessions(session_id, actor=actor)[session_id]
    same = AgentSession.title == mine.title
    others = (AgentSession.agent_id == mine.agent_id) & (AgentSession.id != session_id)
    rows = db.session.execute(
        select(
            AgentSession.id, AgentSession.title, AgentSession.created_at, AgentSession.status,
            AgentSession.golden_set, AgentSession.eval_source, AgentVersion.version, Agent.slug, same.label("same"),
        )
        .join(Agent, (Agent.tenant_id == AgentSession.tenant_id) & (Agent.id == AgentSession.agent_id))
        .outerjoin(AgentVersion, AgentVersion.id == AgentSession.agent_version_id)
        .where(AgentSession.tenant_id == actor.tenant_id, others)
        .order_by(same.desc(), AgentSession.golden_set.is_(None), AgentSession.created_at.desc())
        .limit(MAX_OTHERS)
    )  # fmt: skip
    return list(rows)
