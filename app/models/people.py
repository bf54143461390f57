"""Workspaces, people and what lets them in."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKey, UniqueConstraint, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from app.actor import SCOPES
from app.db.types import Base, counter, flag, json_object, text_list, timestamp, uuid_pk, write_time
from app.models.base import KeyedRow, Row, addressable, index, one_of, within

ROLES = ("member", "admin", "owner")
LINK_KINDS = ("invite", "sign_in")
TABS = ("conversations", "sessions", "feedback", "knowledge")
# The lists that are tables, whose columns people choose.
TABLES = ("conversations", "sessions", "feedback", "patterns")


class Tenant(Base):
    """A workspace. `settings` holds what its admins decided; `secret` keys the delimiters of its prompts."""

    __tablename__ = "tenants"
    __table_args__ = (CheckConstraint("slug ~ '^[a-z0-9][a-z0-9-]{0,59}$'", name="slug_form"),)

    id: Mapped[uuid_pk]
    slug: Mapped[str] = mapped_column(unique=True)
    name: Mapped[str]
    settings: Mapped[json_object]
    secret: Mapped[str] = mapped_column(
        server_default=text("replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', '')")
    )
    created_at: Mapped[timestamp]


class User(Base):
    """A person, or a workspace's system user. Erasing someone anonymises this row; what they said stays."""

    __tablename__ = "users"
    __table_args__ = (
        index("users_email_key", "lower(email)", unique=True, where="email IS NOT NULL"),
        index("users_external_key", "external_tenant_id, external_id", unique=True, where="external_id IS NOT NULL"),
        CheckConstraint(
            "email IS NOT NULL OR is_system OR external_id IS NOT NULL OR erased_at IS NOT NULL", name="reachable"
        ),
    )

    id: Mapped[uuid_pk]
    email: Mapped[str | None]
    name: Mapped[str]
    password_hash: Mapped[str | None]
    is_system: Mapped[flag]
    # A person without sign-in whom the workspace's own product knows by this id.
    external_id: Mapped[str | None]
    external_tenant_id: Mapped[UUID | None] = mapped_column(ForeignKey("tenants.id", ondelete="CASCADE"))
    erased_at: Mapped[datetime | None]
    created_at: Mapped[timestamp]


class Membership(Row):
    __tablename__ = "memberships"
    __table_args__ = (
        UniqueConstraint("tenant_id", "user_id"),
        index("memberships_user_idx", "user_id, created_at"),
        CheckConstraint(one_of("role", (*ROLES, "system")), name="role_known"),
    )

    user_id: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="RESTRICT"))
    role: Mapped[str]


class UserMemory(Row):
    """What agents remember about a person. Only that person, and agents that answer them, see it."""

    __tablename__ = "user_memories"
    __table_args__ = (
        within("sessions", "session_id", ondelete="SET NULL"),
        index("user_memories_of_user_idx", "tenant_id, user_id, created_at DESC, id DESC"),
        CheckConstraint("content <> ''", name="says_something"),
    )

    user_id: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"))
    content: Mapped[str]
    session_id: Mapped[UUID | None]
    created_at: Mapped[write_time] = mapped_column()


class LoginSession(Row):
    """Someone signed in, in one workspace. Only the hash of the cookie is kept; a revoked row ends it at once."""

    __tablename__ = "login_sessions"
    __table_args__ = (
        index("login_sessions_user_idx", "user_id"),
        CheckConstraint("expires_at > created_at", name="ends"),
    )

    user_id: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"))
    token_hash: Mapped[str] = mapped_column(unique=True)
    seen_at: Mapped[timestamp]
    expires_at: Mapped[datetime]
    revoked_at: Mapped[datetime | None]
    user_agent: Mapped[str | None]


class OneTimeLink(Row):
    """An invitation or a sign-in link: works once, until it expires."""

    __tablename__ = "one_time_links"
    __table_args__ = (CheckConstraint(one_of("kind", LINK_KINDS), name="kind_known"),)

    kind: Mapped[str]
    token_hash: Mapped[str] = mapped_column(unique=True)
    user_id: Mapped[UUID | None] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"))
    email: Mapped[str | None]
    role: Mapped[str | None]
    created_by: Mapped[UUID | None] = mapped_column(ForeignKey("users.id", ondelete="SET NULL"))
    expires_at: Mapped[datetime]
    used_at: Mapped[datetime | None]


class ApiKey(Row):
    """A key acts as its person, in its workspace, within its scopes. The key itself is shown once and never kept."""

    __tablename__ = "api_keys"
    __table_args__ = (
        addressable(),
        index("api_keys_tenant_idx", "tenant_id, created_at"),
        CheckConstraint(
            f"scopes <@ ARRAY[{', '.join(f'{scope!r}' for scope in SCOPES)}] AND cardinality(scopes) > 0",
            name="scopes_known",
        ),
    )

    user_id: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="RESTRICT"))
    name: Mapped[str]
    prefix: Mapped[str]
    key_hash: Mapped[str] = mapped_column(unique=True)
    scopes: Mapped[text_list]
    last_used_at: Mapped[datetime | None]
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]


class SignInAttempt(Base):
    """Failed attempts in a window of time, by the hash of the address, the e-mail, both, or a known browser."""

    __tablename__ = "sign_in_attempts"
    __table_args__ = (index("sign_in_attempts_age_idx", "window_began"),)

    key: Mapped[str] = mapped_column(primary_key=True)
    failures: Mapped[counter]
    window_began: Mapped[timestamp]


class AuditEntry(Row):
    """Who did what to which record, from what to what. Append-only."""

    __tablename__ = "audit_log"
    __table_args__ = (
        index("audit_log_tenant_idx", "tenant_id, created_at DESC, id DESC"),
        index("audit_log_subject_idx", "tenant_id, subject_type, subject_id"),
    )

    actor_user_id: Mapped[UUID | None] = mapped_column(ForeignKey("users.id", ondelete="RESTRICT"))
    actor_agent_id: Mapped[UUID | None]
    action: Mapped[str]
    subject_type: Mapped[str]
    subject_id: Mapped[UUID | None]
    details: Mapped[json_object]
    request_id: Mapped[str | None]
    created_at: Mapped[write_time] = mapped_column()


class Purge(Base):
    """A workspace that was deleted for good, and how many rows went with it. Only the owner reads and writes it."""

    __tablename__ = "purges"

    id: Mapped[uuid_pk]
    workspace_id: Mapped[UUID]
    counts: Mapped[json_object]
    purged_by: Mapped[str] = mapped_column(server_default=text("session_user"))
    purged_at: Mapped[timestamp]


class IdempotencyKey(Row):
    """What was answered to a request that may come again. Kept for a day."""

    __tablename__ = "idempotency_keys"
    __table_args__ = (
        UniqueConstraint("tenant_id", "user_id", "route", "key"),
        index("idempotency_keys_age_idx", "tenant_id, created_at"),
    )

    user_id: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"))
    route: Mapped[str]
    key: Mapped[str]
    body_hash: Mapped[str]
    status: Mapped[int | None]
    answer: Mapped[Any | None] = mapped_column(JSONB)


class SavedView(Row):
    """The query of a list under a name. All admins see a shared one."""

    __tablename__ = "saved_views"
    __table_args__ = (
        UniqueConstraint("tenant_id", "user_id", "tab", "name"),
        index("saved_views_default_key", "tenant_id, user_id, tab", unique=True, where="is_default"),
        CheckConstraint(one_of("tab", TABS), name="tab_known"),
    )

    user_id: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"))
    tab: Mapped[str]
    name: Mapped[str]
    query: Mapped[str]
    shared: Mapped[flag]
    is_default: Mapped[flag]


class ListColumns(KeyedRow):
    """The columns of a list as a person wants them. `keeps_same`: those with one value in every row stay, too."""

    __tablename__ = "list_columns"
    __table_args__ = (CheckConstraint(one_of("list", TABLES), name="list_known"),)

    user_id: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), primary_key=True)
    list: Mapped[str] = mapped_column(primary_key=True)
    hidden: Mapped[text_list]
    keeps_same: Mapped[flag]
