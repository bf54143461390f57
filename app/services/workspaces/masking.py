"""What a workspace masks, and masking of what comes in."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from uuid import UUID

from sqlalchemy import select

from app.actor import Actor
from app.db import db
from app.models import Tenant
from app.text.masking import Masking

DIGITS = re.compile("[0-9]")
_shared_masking: ContextVar[tuple[UUID, Masking] | None] = ContextVar("kept_masking", default=None)


@contextmanager
def share_masking(actor: Actor) -> Iterator[None]:
    """Ask once for all that is taken in meanwhile, in one transaction and for one workspace."""
    token = _shared_masking.set((actor.tenant_id, masking_for(actor)))
    try:
        yield
    finally:
        _shared_masking.reset(token)


def masking_for(actor: Actor) -> Masking:
    """Secrets and card numbers always; e-mail addresses and phone numbers if the admins want that. One query."""
    kept = _shared_masking.get()
    if kept is not None and kept[0] == actor.tenant_id:
        return kept[1]
    wanted = [Tenant.settings[name].as_boolean() for name in ("mask_emails", "mask_phones")]
    emails, phones = db.session.execute(select(*wanted).where(Tenant.id == actor.tenant_id)).one()
    return Masking(bool(emails), bool(phones))


def masking_of_words(comment: str | None, more: object, *, actor: Actor) -> Masking:
    """The same for a comment and what comes with it. A comment alone, in which neither an address nor a number can
    stand, needs no question to the database."""
    simple = not comment or ("@" not in comment and len(DIGITS.findall(comment)) < 7)
    return Masking() if simple and not more else masking_for(actor)
