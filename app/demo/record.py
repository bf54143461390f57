"""`upshot demo record`: hold every written conversation with the offline agents, and keep what they answer."""

from __future__ import annotations

import secrets
from collections.abc import Collection
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from app.db import acting_as, transaction
from app.db.boot import connect
from app.demo.live import Live
from app.demo.play import Held, Kept, Player
from app.demo.recording import FILE, Recorded, read_recorded
from app.demo.seed import NAME, history
from app.demo.setting import set_up
from app.demo.talks import Talk
from app.demo.world import World, talks
from app.services import workspaces

# The recording is made as of one moment, so that it is the same whenever it is made.
RECORDED_AT = datetime(2026, 11, 17, 18, 0, tzinfo=UTC)


def record(owner_url: str | None) -> dict[str, Any]:
    """Write the recording anew. The workspace in which it happens is deleted, if the owner of the database is known."""
    found = hold_all(owner_url)
    place = Path(__file__).with_name(FILE)
    place.write_text("".join(f"{one.line()}\n" for one in found.values()), encoding="utf-8")
    return {"conversations": len(found), "file": str(place)}


def hold_all(owner_url: str | None, only: Collection[str] | None = None) -> dict[str, Recorded]:
    """How the conversations go, by key. With `only`, the others are taken from the recording."""
    with acting_as(None), transaction():
        _, system = workspaces.create_workspace(slug=f"demo-record-{secrets.token_hex(4)}", name=NAME)
        world = World(RECORDED_AT, system)
        set_up(world)
    live = Live(world)
    try:
        player: Player = live if only is None else _some(world, live, only)
        for step in history(world, player):
            step()
    finally:
        live.close()
        if owner_url:
            with connect(owner_url, "UPSHOT_OWNER_DATABASE_URL") as connection:
                connection.execute("select purge_tenant(%s)", (system.tenant_id,))
    return dict(sorted(live.recorded.items()))


def _some(world: World, live: Live, only: Collection[str]) -> _Some:
    with live.within():
        kept = Kept(world, read_recorded(), [talk for talk in talks() if talk.key not in only])
    return _Some(live, kept, only)


class _Some:
    """Holds some conversations and takes the others from the recording."""

    def __init__(self, live: Live, kept: Kept, only: Collection[str]) -> None:
        self.live = live
        self.kept = kept
        self.only = only
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
