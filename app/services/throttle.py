"""How many wrong passwords are borne: few from one address for one e-mail, more from one address for any.

An attempt is counted and committed before the password is looked at, so that a hundred at the same moment are a
hundred. The right password takes its own attempt back.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import text

from app.db import db
from app.errors import Throttled

WINDOW = timedelta(minutes=15)
PER_PERSON, PER_ADDRESS = 10, 100

KEY = text("select set_config('app.throttle_key', :key, true)")
COUNT = text(
    "insert into sign_in_attempts as a (key, failures, window_began) values (:key, 1, now())"
    " on conflict (key) do update set"
    " failures = case when a.window_began <= now() - cast(:window as interval) then 1 else a.failures + 1 end,"
    " window_began = case when a.window_began <= now() - cast(:window as interval) then now() else a.window_began end"
    " returning failures, ceil(extract(epoch from window_began + cast(:window as interval) - now()))::int"
)
FORGET = text("delete from sign_in_attempts where key = :key")
TAKE_BACK = text("update sign_in_attempts set failures = greatest(failures - 1, 0) where key = :key")


@dataclass(frozen=True)
class Attempt:
    """`last` says that a wrong password now is one too many; then `retry_after` seconds have to pass."""

    last: bool
    retry_after: int


def count_attempt(email: str, address: str) -> Attempt:
    """Count it, or refuse it when there were too many. Commit before the password is looked at."""
    limits = ((_key(address), PER_ADDRESS), (_key(address, email), PER_PERSON))
    counted = [(*_count(key), most) for key, most in limits]
    for failures, seconds, most in counted:
        if failures > most:
            raise too_many(seconds)
    full = [seconds for failures, seconds, most in counted if failures >= most]
    return Attempt(bool(full), max(full, default=0))


def too_many(seconds: int) -> Throttled:
    minutes = max(1, -(-seconds // 60))
    return Throttled(
        f"Too many attempts. Wait {minutes} minute{'' if minutes == 1 else 's'}, then try again.", max(1, seconds)
    )


def forget(email: str, address: str) -> None:
    """The password was right: nothing is held against this person here any more. The rows are taken in the order in
    which counting takes them, so that two at the same moment wait for each other instead of blocking each other."""
    for key, statement in ((_key(address), TAKE_BACK), (_key(address, email), FORGET)):
        _open(key)
        db.session.execute(statement, {"key": key})


def _count(key: str) -> tuple[int, int]:
    _open(key)
    failures, seconds = db.session.execute(COUNT, {"key": key, "window": WINDOW}).one()
    return int(failures), int(seconds)


def _open(key: str) -> None:
    """Row-level security shows the one row whose key is named."""
    db.session.execute(KEY, {"key": key})


def _key(address: str, email: str = "") -> str:
    return hashlib.sha256(f"{address}\n{email.strip().lower()}".encode("utf-8", "surrogatepass")).hexdigest()
