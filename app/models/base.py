"""What the tables of a workspace share."""

from typing import Any
from uuid import UUID

from sqlalchemy import Computed, ForeignKey, ForeignKeyConstraint, Index, UniqueConstraint, text
from sqlalchemy.dialects.postgresql import TSVECTOR
from sqlalchemy.orm import Mapped, MappedColumn, mapped_column

from app.db.types import Base, timestamp, uuid_pk


class Row(Base):
    """A row of one workspace. Where `created_at` tells rows of one transaction apart, a table declares it again."""

    __abstract__ = True

    id: Mapped[uuid_pk]
    tenant_id: Mapped[UUID] = mapped_column(ForeignKey("tenants.id", ondelete="CASCADE"))
    created_at: Mapped[timestamp]


class KeyedRow(Base):
    """A row of one workspace that has no id: the workspace is part of its key."""

    __abstract__ = True

    tenant_id: Mapped[UUID] = mapped_column(
        ForeignKey("tenants.id", ondelete="CASCADE"), primary_key=True, sort_order=-1
    )


def within(
    table: str, column: str, *, ondelete: str = "RESTRICT", deferrable: bool | None = None
) -> ForeignKeyConstraint:
    """A link that cannot leave the workspace. Foreign keys ignore row-level security, so the tenant is part of it."""
    return ForeignKeyConstraint(
        ["tenant_id", column],
        [f"{table}.tenant_id", f"{table}.id"],
        ondelete=f"SET NULL ({column})" if ondelete == "SET NULL" else ondelete,
        deferrable=deferrable,
    )


def addressable() -> UniqueConstraint:
    """What `within` points at."""
    return UniqueConstraint("tenant_id", "id")


def one_of(column: str, values: tuple[str, ...]) -> str:
    """The text of a CHECK that a column is one of the values."""
    return f"{column} IN ({', '.join(repr(value) for value in values)})"


def index(name: str, columns: str, where: str | None = None, **options: Any) -> Index:
    """An index. Its columns and its condition are SQL."""
    return Index(name, text(columns), postgresql_where=None if where is None else text(where), **options)


def search_vector(expression: str) -> MappedColumn[str]:
    """A column that full-text search reads. It is not loaded with its row."""
    words = f"to_tsvector('english', left({expression}, 20000))"
    return mapped_column(TSVECTOR, Computed(words, persisted=True), deferred=True)
