"""The workspace's own records, and what agents and people filled in about them."""

from datetime import datetime
from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKey, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from app.db.types import flag, json_object, timestamp
from app.models.base import Row, addressable, index, one_of, within

RESPONSE_STATUSES = ("submitted", "accepted", "rejected")


class EntityType(Row):
    """A kind of record, such as a deal. `fields` is a JSON schema's `properties`."""

    __tablename__ = "entity_types"
    __table_args__ = (addressable(), UniqueConstraint("tenant_id", "slug"))

    slug: Mapped[str]
    name: Mapped[str]
    fields: Mapped[json_object]
    archived_at: Mapped[datetime | None]


class Entity(Row):
    __tablename__ = "entities"
    __table_args__ = (
        addressable(),
        within("entity_types", "entity_type_id"),
        index("entities_recent_idx", "tenant_id, updated_at DESC, id DESC"),
        index("entities_type_idx", "tenant_id, entity_type_id, updated_at DESC, id DESC"),
    )

    entity_type_id: Mapped[UUID]
    name: Mapped[str]
    fields: Mapped[json_object]
    updated_at: Mapped[timestamp]


class EntityResponse(Row):
    """Values that a person or an agent submitted about a record, and the decision about them."""

    __tablename__ = "entity_responses"
    __table_args__ = (
        addressable(),
        within("entities", "entity_id", ondelete="CASCADE"),
        within("criteria_sets", "criteria_set_id", ondelete="SET NULL"),
        within("sessions", "session_id", ondelete="SET NULL"),
        within("agents", "agent_id", ondelete="SET NULL"),
        index("entity_responses_entity_idx", "tenant_id, entity_id, created_at DESC"),
        CheckConstraint(one_of("status", RESPONSE_STATUSES), name="status_known"),
        CheckConstraint("status <> 'rejected' OR coalesce(rejection_reason, '') <> ''", name="rejection_has_reason"),
    )

    entity_id: Mapped[UUID]
    criteria_set_id: Mapped[UUID | None]
    session_id: Mapped[UUID | None]
    agent_id: Mapped[UUID | None]
    values: Mapped[json_object]
    extracted: Mapped[flag]
    status: Mapped[str] = mapped_column(server_default="submitted")
    rejection_reason: Mapped[str | None]
    created_by: Mapped[UUID | None] = mapped_column(ForeignKey("users.id", ondelete="RESTRICT"))
    # Whose conversation it was made in; nobody else but admins sees it then.
    owner_id: Mapped[UUID | None] = mapped_column(ForeignKey("users.id", ondelete="RESTRICT"))
    decided_by: Mapped[UUID | None] = mapped_column(ForeignKey("users.id", ondelete="RESTRICT"))
    decided_at: Mapped[datetime | None]
