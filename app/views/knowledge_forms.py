"""The form of a knowledge row: what was typed, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from app.errors import Invalid, Problem, Stale
from app.services.knowledge import KnowledgeRow, NewRow


@dataclass(frozen=True)
class KnowledgeForm:
    """`theirs` is what somebody else wrote meanwhile; the form then carries their version, so that saving again is a
    decision."""

    type: str = "correction"
    content: str = ""
    context: str = ""
    agent_id: str = ""
    entity_type_id: str = ""
    pinned: bool = False
    reason: str = ""
    version: int = 0
    errors: dict[str, str] = field(default_factory=dict)
    theirs: dict[str, Any] | None = None

    @classmethod
    def of(cls, row: KnowledgeRow) -> KnowledgeForm:
        return cls(
            row.type,
            row.content,
            row.context or "",
            str(row.agent_id or ""),
            str(row.entity_type_id or ""),
            row.pinned,
            version=row.version,
        )

    @classmethod
    def read(cls, form: Mapping[str, str]) -> KnowledgeForm:
        version = form.get("version", "")
        return cls(
            form.get("type", ""),
            form.get("content", "").replace("\r\n", "\n").strip(),
            form.get("context", "").replace("\r\n", "\n").strip(),
            form.get("agent_id", ""),
            form.get("entity_type_id", ""),
            form.get("pinned") == "1",
            form.get("reason", "").strip(),
            int(version) if version.isascii() and version.isdigit() and len(version) < 9 else 0,
        )

    def as_changes(self) -> dict[str, Any]:
        return {
            "type": self.type,
            "content": self.content,
            "context": self.context or None,
            "agent_id": _id("agent_id", self.agent_id),
            "entity_type_id": _id("entity_type_id", self.entity_type_id),
            "pinned": self.pinned,
        }

    def as_new(self) -> NewRow:
        return NewRow(**self.as_changes())

    def refused(self, refusal: Problem) -> KnowledgeForm:
        """The same form with a sentence under what does not fit; what belongs to no field stands under the text."""
        fields = refusal.fields if isinstance(refusal, Invalid) else {}
        return replace(self, errors=fields or {"content": refusal.detail})

    def overtaken(self, stale: Stale, current: KnowledgeRow) -> KnowledgeForm:
        sentence = f"{stale.detail} Your text is kept; save again to put it in place of theirs."
        return replace(self, errors={"content": sentence}, theirs=dict(stale.current or {}), version=current.version)


def _id(name: str, text: str) -> UUID | None:
    try:
        return UUID(text) if text else None
    except ValueError:
        raise Invalid("Choose one from the list.", {name: "Choose one from the list."}) from None
