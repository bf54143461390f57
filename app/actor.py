"""Who acts: the person or key behind a request, a command or a job, in one workspace."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from uuid import UUID

from app.errors import Forbidden

RANK = {"member": 1, "admin": 2, "owner": 3}
SCOPES = ("ingest", "feedback", "feedback-token", "context", "knowledge", "admin")


@dataclass(frozen=True)
class Actor:
    """`role` is the membership's role, or `system` for the product's own work. `scopes` is None for a person in a
    browser and the granted set for a key, also while an agent runs that the key started; `agent_id` is set while an
    agent acts. Who is `hermetic` replays a golden: the database lets them write nothing but the replay. `vouched_by` is
    set for a visitor from another site: the person whose key asked for their token."""

    id: UUID
    tenant_id: UUID
    role: str
    name: str = ""
    scopes: frozenset[str] | None = None
    key_id: UUID | None = None
    agent_id: UUID | None = None
    request_id: str | None = None
    hermetic: bool = False
    vouched_by: UUID | None = None

    @property
    def is_admin(self) -> bool:
        """Sees the whole workspace. A key acts with its person's role, but only with the admin scope."""
        if self.role == "system":
            return True
        if self.scopes is not None and "admin" not in self.scopes:
            return False
        return RANK[self.role] >= RANK["admin"]

    def at_least(self, role: str) -> bool:
        return self.role == "system" or RANK[self.role] >= RANK[role]

    def check_admin(self, refusal: str) -> None:
        if not self.is_admin:
            raise Forbidden(refusal)

    def has_scope(self, scope: str) -> bool:
        return self.scopes is None or scope in self.scopes or "admin" in self.scopes

    @property
    def stored_scopes(self) -> list[str] | None:
        """The scopes in the form a session keeps them; None for a person or the product."""
        return None if self.scopes is None else [scope for scope in SCOPES if scope in self.scopes]

    def limited_to(self, scopes: Collection[str] | None) -> Actor:
        """The same actor with no more than these scopes. `admin` includes every other scope; None is no limit."""
        if scopes is None:
            return self
        given = frozenset(scopes)
        if self.scopes is None or "admin" in self.scopes:
            return replace(self, scopes=given)
        return replace(self, scopes=self.scopes if "admin" in given else self.scopes & given)

    @property
    def bound_role(self) -> str:
        """What the database is told: `admin` sees all rows of the workspace, `member` their own feedback."""
        return "system" if self.role == "system" else ("admin" if self.is_admin else "member")
