"""One row of the actor's workspace by its id."""

from typing import Any, TypeVar
from uuid import UUID

from sqlalchemy import select

from app.actor import Actor
from app.db import db
from app.errors import NotFound

Row = TypeVar("Row")


def get_own(model: type[Row], row_id: UUID | None, noun: str, *, actor: Actor, lock: bool = False) -> Row:
    """Return the row or raise NotFound. `lock` holds it until the transaction ends and reads it again."""
    columns: Any = model
    statement = select(model).where(columns.tenant_id == actor.tenant_id, columns.id == row_id)
    if lock:
        statement = statement.with_for_update().execution_options(populate_existing=True)
    found = db.session.scalar(statement)
    if found is None:
        raise NotFound(f"There is no such {noun} in this workspace.")
    return found
