"""Passwords: what one must be, how it is kept, and a check that takes the same time whoever asks."""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from typing import TYPE_CHECKING

from app.errors import Invalid

if TYPE_CHECKING:
    from argon2 import PasswordHasher

LEAST, MOST = 10, 200


@lru_cache(maxsize=1)
def hasher() -> PasswordHasher:
    """19 MiB a check: every thread of the server may be checking one at the same time."""
    from argon2 import PasswordHasher

    return PasswordHasher(time_cost=3, memory_cost=19 * 1024, parallelism=1)


def hashed(password: str) -> str:
    return hasher().hash(_same_form(password))


def matches(stored: str | None, password: str) -> bool:
    """Whether this is the password. Without a stored one the work is done all the same, so that the time that the
    answer takes does not say whether somebody has an account."""
    from argon2.exceptions import Argon2Error, InvalidHashError

    nobody = _nobodys()
    try:
        hasher().verify(stored or nobody, _same_form(password[: MOST * 2]))
    except (Argon2Error, InvalidHashError):
        return False
    return stored is not None


def check(password: str, email: str | None, field: str = "password") -> None:
    """Raise unless it may become somebody's password."""
    sentence = None
    if len(password) < LEAST:
        sentence = f"Use at least {LEAST} characters."
    elif len(password) > MOST:
        sentence = f"Use at most {MOST} characters."
    elif email and password.strip().lower() == email.lower():
        sentence = "Use something other than the e-mail address."
    if sentence:
        raise Invalid(sentence, {field: sentence})


@lru_cache(maxsize=1)
def _nobodys() -> str:
    import secrets

    return hashed(secrets.token_urlsafe(32))


def _same_form(password: str) -> bytes:
    """Two keyboards may write the same letter in two ways."""
    return unicodedata.normalize("NFKC", password).encode("utf-8", "surrogatepass")
