"""`upshot demo record`: hold every written conversation with the offline agents, replay the goldens, and keep what they
answer."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from app.db import acting_as, transaction
from app.db.connect import connect
from app.demo import replayed
from app.demo.live import Live
from app.demo.play import Held, Kept, Player
from app.demo.recording import FILE, Recorded, read_recorded
from app.demo.replayed import Replayed
from app.demo.seed import NAME, history
from app.demo.setting import set_up
from app.demo.talks import Talk
from app.demo.world import World, talks
from app.services.workspaces import store as workspace_store

# The recording is made as of one moment, so that it is the same whenever it is made.
RECORDED_AT = datetime(2026, 11, 17, 18, 0, tzinfo=UTC)


def record(owner_url: str | None, *, replays_only: bool = False) -> dict[str, Any]:
    """Write the recording anew. The workspace in which it happens is deleted, if the owner of the database is known."""
    live = _held(owner_url, () if replays_only else None, None)
    if not replays_only:
        _write(FILE, [one.line() for _, one in sorted(live.recorded.items())])
    _write(replayed.FILE, [one.line() for one in live.replayed.values()])
    return {"conversations": len(live.recorded), "runs": len(live.replayed)}


def _write(name: str, lines: Iterable[str]) -> None:
    Path(__file__).with_name(name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def hold_again(
    owner_url: str | None, talks: Collection[str], runs: Collection[str]
) -> tuple[dict[str, Recorded], dict[str, Replayed]]:
    """How these conversations and runs over goldens go, by key, in the middle of the recorded others."""
    live = _held(owner_url, talks, runs)
    return dict(sorted(live.recorded.items())), live.replayed


def _held(owner_url: str | None, only: Collection[str] | None, runs: Collection[str] | None) -> Live:
    """Everything that happened, these conversations and runs really; None stands for all of them."""
    with acting_as(None), transaction():
        _, system = workspace_store.create_workspace(slug=f"demo-record-{secrets.token_hex(4)}", name=NAME)
        world = World(RECORDED_AT, system)
        set_up(world)
    live = Live(world)
    try:
        player: Player = live if only is None else _some(world, live, only, runs)
        for step in history(world, player):
            step()
    finally:
        live.close()
        if owner_url:
            with connect(owner_url, "UPSHOT_OWNER_DATABASE_URL") as connection:
                connection.execute("select purge_tenant(%s)", (system.tenant_id,))
    return live


def _some(world: World, live: Live, only: Collection[str], runs: Collection[str] | None) -> _Some:
    with live.within():
        kept = Kept(world, read_recorded(), [talk for talk in talks() if talk.key not in only])
    return _Some(live, kept, only, runs)


class _Some:
    """Holds some conversations, replays in some runs, and takes the rest from the recording."""

    def __init__(self, live: Live, kept: Kept, only: Collection[str], runs: Collection[str] | None) -> None:
        self.live = live
        self.kept = kept
        self.only = only
        self.runs = runs
        self.within = live.within
        self.reserve = live.reserve

    def hold(self, talk: Talk) -> Held:
        if talk.key in self.only:
            return self.live.hold(talk)
        with self.within():
            return self.kept.hold(talk)

    def try_again(self, talk: Talk, session_id: Any, at: datetime) -> None:
        if talk.key in self.only:
            self.live.try_again(talk, session_id, at)
            return
        with self.within():
            self.kept.try_again(talk, session_id, at)

    def replay(self, run: dict[str, Any]) -> None:
        if self.runs is None or run["key"] in self.runs:
            self.live.replay(run)
            return
        with self.within():
            self.kept.replay(run)
