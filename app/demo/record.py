"""`upshot demo record`: have the offline agents answer the script and replay the goldens, and keep what they do."""

import asyncio
import secrets
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from flask import current_app

from app.agents.runtime import Run
from app.agents.turn import Threads
from app.config import Settings
from app.db import acting_as, db, transaction
from app.demo import playback
from app.demo.history import build_history
from app.demo.playback import PlayedTalk, Player
from app.demo.seed import NAME, purge
from app.demo.world import (
    RUNS_FILE,
    TALKS_FILE,
    Events,
    Recorded,
    Talk,
    World,
    assign_times,
    load_talks,
    set_up,
    to_line,
    to_names,
)
from app.models import AgentSession
from app.services.sessions import store as session_store
from app.services.sessions.event_windows import events_of
from app.services.sessions.leases import Lease
from app.services.sessions.store import NewSession
from app.services.workspaces import store as workspace_store

OWNER = "demo record"
MAX_RUN_TIME = timedelta(minutes=5)
# The recording is made as of one moment, so that it is the same whenever it is made.
RECORDED_AT = datetime(2026, 11, 17, 18, 0, tzinfo=UTC)


def record(owner_url: str | None, *, replays_only: bool = False) -> dict[str, Any]:
    """Write the recordings anew."""
    talks, runs = record_live(owner_url, () if replays_only else None, None)
    if not replays_only:
        _write(TALKS_FILE, talks.values())
    _write(RUNS_FILE, runs.values())
    return {"conversations": len(talks), "runs": len(runs)}


def _write(path: Path, recorded: Iterable[Recorded]) -> None:
    path.write_text("".join(f"{to_line(row)}\n" for row in recorded), encoding="utf-8")


def record_live(
    owner_url: str | None, talks: Collection[str] | None, runs: Collection[str] | None
) -> tuple[dict[str, Recorded], dict[str, Recorded]]:
    """Play the whole demo, these conversations and runs live and the others from the recording. None means all. Returns
    what was live, by key. The workspace is deleted afterwards if the owner of the database is known."""
    with acting_as(None), transaction():
        _, system = workspace_store.create_workspace(slug=f"demo-record-{secrets.token_hex(4)}", name=NAME)
        world = World(RECORDED_AT, system)
        set_up(world)
    player = LivePlayer(world, talks, runs)
    try:
        for step in build_history(world, player):
            step()
    finally:
        player.threads.close()
        if owner_url:
            purge(owner_url, system.tenant_id)
    return dict(sorted(player.new_talks.items())), player.new_runs


class LivePlayer(Player):
    """Has agents answer the chosen conversations and replay in the chosen runs, each in its own transactions."""

    def __init__(self, world: World, talks: Collection[str] | None, runs: Collection[str] | None) -> None:
        self.threads = Threads(current_app._get_current_object(), 2)  # type: ignore[attr-defined]
        self.settings: Settings = current_app.config["SETTINGS"]
        self.new_talks: dict[str, Recorded] = {}
        self.new_runs: dict[str, Recorded] = {}
        self._talks, self._runs = talks, runs
        self._leases: dict[UUID, Lease] = {}
        self.world = world
        super().__init__(world, [talk for talk in load_talks() if not _is_chosen(talk.key, talks)])

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with acting_as(self.world.system), transaction():
            yield

    def reserve(self, session_id: UUID) -> None:
        """Lease the session before its transaction ends, so that no worker takes it."""
        session = db.session.get_one(AgentSession, session_id)
        session.status, session.lease_owner, session.attempt = "running", OWNER, 1
        session.lease_until = session.started_at = datetime.now(UTC) + MAX_RUN_TIME
        db.session.flush()
        self._leases[session_id] = Lease(session.id, session.tenant_id, OWNER, 1)

    def play(self, talk: Talk) -> PlayedTalk:
        if not _is_chosen(talk.key, self._talks):
            with self.transaction():
                return super().play(talk)
        session_id = self._start_session(talk)
        recorded = self.new_talks[talk.key] = self._run(session_id, talk.key, self.world.at(talk.when))
        with self.transaction():
            messages = self._store_chat(talk, session_id, recorded["events"])
            return playback.summarize(self.world, talk, session_id, recorded["events"], messages)

    def retry(self, talk: Talk, session_id: UUID, at: datetime) -> None:
        if _is_chosen(talk.key, self._talks):
            self.new_talks[talk.key]["again"] = self._run(session_id, talk.key, at)
            return
        with self.transaction():
            super().retry(talk, session_id, at)

    def replay(self, entry: dict[str, Any]) -> None:
        key = entry["key"]
        if not _is_chosen(key, self._runs):
            with self.transaction():
                return super().replay(entry)
        with self.transaction():
            _, cases = playback.start_run(self.world, entry)
            replays = {talk: session.id for talk, session in cases.items()}
            for session_id in replays.values():
                self.reserve(session_id)
        for session_id in replays.values():
            self._run_to_end(session_id)
        with self.transaction():
            playback.date_failures(self.world, entry, list(replays.values()))
            recorded = {talk: self._read_case(session_id, f"{key}.{talk}") for talk, session_id in replays.items()}
            self.new_runs[key] = {"run": key, "cases": recorded}

    def _start_session(self, talk: Talk) -> UUID:
        world = self.world
        with self.transaction():
            turns = {"turns": [world.text(prompt) for prompt in talk.prompts]}
            new = NewSession(**playback.session_fields(world, talk), status="running", metadata=turns)
            session, _ = session_store.create_session(new, actor=world.system)
            self.reserve(session.id)
            if talk.stopped:
                session.cancel_requested_at = datetime.now(UTC)
            session_id = world.refs[f"session.{talk.key}"] = session.id
        return session_id

    def _store_chat(self, talk: Talk, session_id: UUID, events: Events) -> list[UUID]:
        """Store the chat of the session, so that feedback can refer to its messages."""
        times, _ = assign_times(events, self.world.at(talk.when))
        session = db.session.get_one(AgentSession, session_id)
        chat = playback.create_chat(self.world, talk, times[0])
        session.chat_id = chat.id if chat else None
        return playback.store_messages(self.world, chat, session, playback.new_events(self.world, events, times))

    def _run(self, session_id: UUID, key: str, began: datetime) -> Recorded:
        self._run_to_end(session_id)
        with self.transaction():
            session = db.session.get_one(AgentSession, session_id, populate_existing=True)
            events = self._read_events(session_id)
            for (kind, payload), at in zip(events, assign_times(events, began)[0], strict=True):
                playback.date_effect(kind, payload, at)
            named = to_names(self.world, key, events)
            return {"talk": key, "status": session.status, "error": session.error, "events": named}

    def _run_to_end(self, session_id: UUID) -> None:
        """Run a session in a thread of its own: the caller may be inside an event loop."""
        attempt = Run(self._leases.pop(session_id), self.threads, self.settings, lambda *_: None)
        with ThreadPoolExecutor(1) as alone:
            alone.submit(lambda: asyncio.run(attempt.run())).result()

    def _read_case(self, session_id: UUID, key: str) -> list[Any]:
        session = db.session.get_one(AgentSession, session_id, populate_existing=True)
        result = {name: value for name, value in session.meta["eval_result"].items() if name != "judged_at"}
        events = to_names(self.world, key, self._read_events(session_id))
        return [session.status, events, to_names(self.world, key, result)]

    def _read_events(self, session_id: UUID) -> list[Any]:
        found = events_of(session_id, actor=self.world.system)
        return [[event.event_type, event.payload] for event in sorted(found, key=lambda event: event.sequence)]


def _is_chosen(key: str, chosen: Collection[str] | None) -> bool:
    return chosen is None or key in chosen
