"""The form of a knowledge row: what was typed, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any
from uuid import UUID

from app.errors import Invalid, Problem, Stale
from app.learning.hygiene.checks import Finding
from app.services.knowledge.lists import KnowledgeRow
from app.services.knowledge.rows import NewRow
from app.text.diff import Part, word_diff
from app.text.hidden_characters import hidden_signs, strip_hidden


class Unconfirmed(Exception):
    """A rule would go live although the checks found something that a person has not confirmed. Raised inside the
    transaction, so that nothing of it is kept."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        super().__init__(f"{len(findings)} findings")
        self.findings = list(findings)


def confirmation_of(findings: Sequence[Finding]) -> str:
    """The value that confirms exactly these findings. A changed text with other findings asks again."""
    return sha256("\n".join(f"{one.check}: {one.reason}" for one in findings).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class KnowledgeForm:
    """`theirs` is what somebody else wrote meanwhile; the form then carries their version, so that saving again is a
    decision. `findings` are what the checks found in the text, for the person to confirm or to change."""

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
    findings: list[Finding] = field(default_factory=list)
    confirm: str = ""

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
            _clean_text(form.get("content", "")),
            _clean_text(form.get("context", "")),
            form.get("agent_id", ""),
            form.get("entity_type_id", ""),
            form.get("pinned") == "1",
            form.get("reason", "").strip(),
            int(version) if version.isascii() and version.isdigit() and len(version) < 9 else 0,
            confirm=form.get("confirm", ""),
        )

    def check_confirmed(self, findings: Sequence[Finding]) -> None:
        """Let a rule go live with these findings only if the person has read them."""
        if findings and self.confirm != confirmation_of(findings):
            raise Unconfirmed(findings)

    def asking(self, unconfirmed: Unconfirmed) -> KnowledgeForm:
        return replace(self, findings=unconfirmed.findings, confirm=confirmation_of(unconfirmed.findings))

    def as_changes(self) -> dict[str, Any]:
        return {
            "type": self.type,
            "content": self.content,
            "context": self.context or None,
            "agent_id": _read_id("agent_id", self.agent_id),
            "entity_type_id": _read_id("entity_type_id", self.entity_type_id),
            "pinned": self.pinned,
        }

    def as_new(self) -> NewRow:
        return NewRow(**self.as_changes())

    def refused(self, refusal: Problem) -> KnowledgeForm:
        """The same form with a sentence under what does not fit; an error without a field goes under the text."""
        fields = refusal.fields if isinstance(refusal, Invalid) else {}
        form = replace(self, errors=fields or {"content": refusal.detail})
        if not form.unseen:
            return form
        # What is offered to be saved is what can be seen: whoever saves again has read every byte of it.
        gone = "Removed below. Check the text and save again."
        errors = {name: f"{text} {gone}" for name, text in form.errors.items()}
        return replace(form, errors=errors, content=strip_hidden(form.content), context=strip_hidden(form.context))

    def overtaken(self, stale: Stale) -> KnowledgeForm:
        current = dict(stale.current or {})
        return replace(self, errors={"content": stale.detail}, theirs=current, version=current.get("version", 0))

    @property
    def unseen(self) -> bool:
        """Whether something in it cannot be seen."""
        return bool(hidden_signs(self.content) or hidden_signs(self.context))

    @property
    def difference(self) -> list[Part]:
        """What they changed and I did not, as words."""
        return word_diff(str((self.theirs or {}).get("content", "")), self.content)


def _clean_text(text: str) -> str:
    """What was typed, without the line breaks around it and the spaces at its end that a text field invites."""
    return text.replace("\r\n", "\n").lstrip("\n").rstrip()


def _read_id(name: str, text: str) -> UUID | None:
    try:
        return UUID(text) if text else None
    except ValueError:
        raise Invalid("Choose one from the list.", {name: "Choose one from the list."}) from None
