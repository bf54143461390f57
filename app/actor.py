"""Who acts: the person or key behind a request, a command or a job, in one workspace."""

from __future__ import annotations

from dataclasses import dataclass, replace
from uuid import UUID

RANK = {"member": 1, "admin": 2, "owner": 3}
SCOPES = ("ingest", "feedback", "context", "admin")


@dataclass(frozen=True)
class Actor:
    """`role` is the membership's role, or `system` for the product's own work. `scopes` is None for a person in a
    browser and the granted set for a key; `agent_id` is set while an agent acts for the workspace. Who is `hermetic`
    replays a golden: the database lets them read, and write nothing but the replay itself."""

    id: UUID
    tenant_id: UUID
    role: str
    name: str = ""
    scopes: frozenset[str] | None = None
    key_id: UUID | None = None
    agent_id: UUID | None = None
    request_id: str | None = None
    hermetic: bool = False

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

    def has_scope(self, scope: str) -> bool:
        return self.scopes is None or scope in self.scopes or "admin" in self.scopes

    @property
    def bound_role(self) -> str:
        """What the database is told: `admin` sees all rows of the workspace, `member` their own feedback."""
        return "system" if self.role == "system" else ("admin" if self.is_admin else "member")

    def with_request(self, request_id: str) -> Actor:
        return replace(self, request_id=request_id)
