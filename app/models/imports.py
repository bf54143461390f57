"""Imported files."""

from datetime import datetime
from uuid import UUID

from sqlalchemy import ForeignKey, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from app.db.types import created_at, uuid_pk
from app.models.base import Model, OfTenant, addressable


class Import(OfTenant, Model):
    """An imported file and its counts. Sessions name their import, so that it can be undone as a whole."""

    __tablename__ = "imports"
    __table_args__ = (addressable(), Index("imports_recent_idx", "tenant_id", text("created_at DESC")))

    id: Mapped[uuid_pk]
    kind: Mapped[str]
    filename: Mapped[str | None]
    created: Mapped[int] = mapped_column(server_default=text("0"))
    existing: Mapped[int] = mapped_column(server_default=text("0"))
    failed: Mapped[int] = mapped_column(server_default=text("0"))
    created_by: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="RESTRICT"))
    created_at: Mapped[created_at]
    finished_at: Mapped[datetime | None]
    undone_at: Mapped[datetime | None]
    undone_by: Mapped[UUID | None] = mapped_column(ForeignKey("users.id", ondelete="RESTRICT"))
