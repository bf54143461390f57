"""How many wrong passwords are allowed: few from one address for one e-mail, more from one address for any, and more
from all addresses for one e-mail, also for one that nobody has.

An attempt is counted and committed before the password is looked at, so that a hundred at the same moment are a
hundred. Many addresses that guess one password slow each other down, never its owner: a browser in which they signed in
before has a count of its own, and in the beginning every new address has one attempt.
"""

from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import text

from app import tokens
from app.db import db
from app.errors import Throttled

WINDOW = timedelta(minutes=15)
PER_PERSON, PER_ADDRESS = 10, 100
# So many for one e-mail from anywhere, and an address that was wrong before waits; so many, and every new one does.
PER_ACCOUNT, MOST_PER_ACCOUNT = 30, 100
RETENTION = timedelta(days=1)

SET_KEY = text("select set_config('app.throttle_key', :key, true)")
COUNT = text(
    "insert into sign_in_attempts as a (key, failures, window_began) values (:key, 1, now())"
    " on conflict (key) do update set"
    " failures = case when a.window_began <= now() - cast(:window as interval) then 1 else a.failures + 1 end,"
    " window_began = case when a.window_began <= now() - cast(:window as interval) then now() else a.window_began end"
    " returning failures, ceil(extract(epoch from window_began + cast(:window as interval) - now()))::int"
)
FORGET = text("delete from sign_in_attempts where key = :key")
FORGET_OLD = text("delete from sign_in_attempts where window_began < now() - cast(:kept as interval)")
TAKE_BACK = text("update sign_in_attempts set failures = greatest(failures - 1, 0) where key = :key")


@dataclass(frozen=True)
class Attempt:
    """`last` says that a wrong password now is one too many; then `retry_after` seconds have to pass."""

    last: bool
    retry_after: int


def count_attempt(email: str, address: str, device: str | None = None) -> Attempt:
    """Count it, or refuse it when there were too many. Commit before the password is looked at, roll back what is
    refused. `device` names a browser in which this person signed in before."""
    limits = [(_key(address), PER_ADDRESS), (_key(address, email), PER_PERSON)]
    if device is not None:
        limits.append((_key(device=device), PER_PERSON))
    counted = [(*_count(key), most) for key, most in limits]
    for failures, seconds, most in counted:
        if failures > most:
            raise too_many(seconds)
    if device is None:
        # Wherever it comes from; an address that was not wrong before may still try.
        failures, seconds = _count(_key("", email))
        if failures > (MOST_PER_ACCOUNT if counted[1][0] == 1 else PER_ACCOUNT):
            raise too_many(seconds)
    full = [seconds for failures, seconds, most in counted if failures >= most]
    return Attempt(bool(full), max(full, default=0))


def too_many(seconds: int) -> Throttled:
    minutes = max(1, -(-seconds // 60))
    wait = "1 minute" if minutes == 1 else f"{minutes} minutes"
    return Throttled(f"Too many attempts. Wait {wait}, then try again.", max(1, seconds))


def forget_attempts(email: str, address: str, device: str | None = None) -> None:
    """The password was right: nothing is held against this person here any more. The rows are taken in the order in
    which counting takes them, so that two at the same moment wait for each other instead of blocking each other."""
    last = (_key("", email), TAKE_BACK) if device is None else (_key(device=device), FORGET)
    for key, statement in ((_key(address), TAKE_BACK), (_key(address, email), FORGET), last):
        _set_key(key)
        db.session.execute(statement, {"key": key})


def purge_attempts() -> int:
    """Remove counts whose window ended long ago; how many. The product itself may."""
    return int(db.session.execute(FORGET_OLD, {"kept": RETENTION}).rowcount)  # type: ignore[attr-defined]


def _count(key: str) -> tuple[int, int]:
    _set_key(key)
    failures, seconds = db.session.execute(COUNT, {"key": key, "window": WINDOW}).one()
    return int(failures), int(seconds)


def _set_key(key: str) -> None:
    """Row-level security shows the one row whose key is named."""
    db.session.execute(SET_KEY, {"key": key})


def _key(address: str = "", email: str = "", device: str = "") -> str:
    """What is counted: the attempts from an address, for an e-mail, for both together, or in a known browser."""
    return tokens.digest(f"{address}\n{email.strip().lower()}\n{device}")
