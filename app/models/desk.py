"""What admins add while they work: saved views, comments, imports; and the daily counts behind the volume strip."""

from __future__ import annotations

from datetime import date, datetime
from uuid import UUID

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Index, UniqueConstraint, func, text
from sqlalchemy.orm import Mapped, mapped_column

from app.db.types import created_at, uuid_pk
from app.models.base import Model, OfTenant, addressable, one_of, within
from app.models.feedback import RATINGS

TABS = ("conversations", "sessions", "feedback", "knowledge")


class Import(OfTenant, Model):
    """One file that was taken in, and what came of it. Its sessions name it, so that it can be undone as a whole."""

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


class SavedView(OfTenant, Model):
    """A list as somebody likes to see it: the query of its address under a name. A shared one is read by all admins."""

    __tablename__ = "saved_views"
    __table_args__ = (
        UniqueConstraint("tenant_id", "user_id", "tab", "name"),
        Index(
            "saved_views_default_key",
            "tenant_id",
            "user_id",
            "tab",
            unique=True,
            postgresql_where=text("is_default"),
        ),
        CheckConstraint(one_of("tab", TABS), name="tab_known"),
    )

    id: Mapped[uuid_pk]
    user_id: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"))
    tab: Mapped[str]
    name: Mapped[str]
    query: Mapped[str]
    shared: Mapped[bool] = mapped_column(server_default=text("false"))
    is_default: Mapped[bool] = mapped_column(server_default=text("false"))
    created_at: Mapped[created_at]


class FeedbackComment(OfTenant, Model):
    """What admins say to each other about a feedback row. Its author never sees it."""

    __tablename__ = "feedback_comments"
    __table_args__ = (
        within("feedback", "feedback_id", ondelete="CASCADE"),
        Index("feedback_comments_feedback_idx", "tenant_id", "feedback_id", "created_at"),
        CheckConstraint("body <> ''", name="says_something"),
    )

    id: Mapped[uuid_pk]
    feedback_id: Mapped[UUID]
    user_id: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="RESTRICT"))
    body: Mapped[str]
    created_at: Mapped[created_at] = mapped_column(server_default=func.clock_timestamp())


class FeedbackDaily(OfTenant, Model):
    """How much feedback of each rating a day brought, in the workspace's time zone. Counted in batches."""

    __tablename__ = "feedback_daily"
    __table_args__ = (CheckConstraint(one_of("rating", RATINGS), name="rating_known"),)

    tenant_id: Mapped[UUID] = mapped_column(ForeignKey("tenants.id", ondelete="CASCADE"), primary_key=True)
    day: Mapped[date] = mapped_column(primary_key=True)
    rating: Mapped[str] = mapped_column(primary_key=True)
    total: Mapped[int] = mapped_column(BigInteger)
    counted_at: Mapped[created_at]
