"""What the tables of a workspace share."""

from uuid import UUID

from sqlalchemy import ForeignKey, ForeignKeyConstraint, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from app.db.types import Base


class Model(Base):
    """A table of ours."""

    __abstract__ = True


class OfTenant:
    """A row that belongs to one workspace."""

    tenant_id: Mapped[UUID] = mapped_column(ForeignKey("tenants.id", ondelete="CASCADE"))


def within(
    table: str, column: str, *, ondelete: str = "RESTRICT", target: str = "id", deferrable: bool | None = None
) -> ForeignKeyConstraint:
    """A link that cannot leave the workspace. Foreign keys ignore row-level security, so the tenant is part of it."""
    return ForeignKeyConstraint(
        ["tenant_id", column],
        [f"{table}.tenant_id", f"{table}.{target}"],
        ondelete=f"SET NULL ({column})" if ondelete == "SET NULL" else ondelete,
        deferrable=deferrable,
    )


def addressable() -> UniqueConstraint:
    """What `within` points at."""
    return UniqueConstraint("tenant_id", "id")


def one_of(column: str, values: tuple[str, ...]) -> str:
    """The text of a CHECK that a column is one of the values."""
    return f"{column} IN ({', '.join(repr(value) for value in values)})"
