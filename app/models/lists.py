"""Saved views of lists."""

from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKey, Index, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from app.db.types import created_at, uuid_pk
from app.models.base import Model, OfTenant, one_of

TABS = ("conversations", "sessions", "feedback", "knowledge")


class SavedView(OfTenant, Model):
    """The query of a list under a name. All admins see a shared one."""

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
