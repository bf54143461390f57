"""Known browsers: a signed cookie names up to five people who signed in with this browser within a year.

A mark does not sign in. It exempts its person from the wait that others cause by guessing their password elsewhere.
"""

import secrets
import time
from uuid import UUID

from app import tokens

PURPOSE = "device"
LIFETIME = 365 * 24 * 3600
MAX_MARKS = 5


def find_mark(secret: str, cookie: str, user_id: UUID) -> str | None:
    """The mark of this person in the cookie, or None. Anything that we did not write is passed over."""
    for mark in cookie.split("|")[:MAX_MARKS]:
        made_at, _, rest = mark.partition(".")
        name, _, signature = rest.partition(".")
        payload = f"{made_at}.{name}"
        if not tokens.same(signature, tokens.sign(secret, PURPOSE, f"{payload}.{user_id}")):
            continue
        return name if int(made_at) > time.time() - LIFETIME else None
    return None


def add_mark(secret: str, cookie: str, user_id: UUID) -> str:
    """The cookie with a fresh mark of this person in front."""
    payload = f"{int(time.time())}.{secrets.token_urlsafe(12)}"
    mark = f"{payload}.{tokens.sign(secret, PURPOSE, f'{payload}.{user_id}')}"
    others = [one for one in cookie.split("|") if one and find_mark(secret, one, user_id) is None]
    return "|".join([mark, *others][:MAX_MARKS])
