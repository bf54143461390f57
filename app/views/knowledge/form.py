"""The form of a knowledge row: what was typed, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from app.errors import Invalid, Problem, Stale
from app.formats.ids import parse_id
from app.learning.hygiene.checks import Finding
from app.services.knowledge.hygiene import Unanswered, confirmation_of
from app.services.knowledge.lists import KnowledgeRow
from app.text.diff import Part, word_diff
from app.text.hidden_characters import hidden_signs, strip_hidden
from app.views.forms import parse_count


@dataclass(frozen=True)
class KnowledgeForm:
    """`theirs` is what someone else wrote meanwhile; the form then carries their version, so that saving again is a
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
        agent_id, type_id = str(row.agent_id or ""), str(row.entity_type_id or "")
        return cls(row.type, row.content, row.context or "", agent_id, type_id, row.pinned, version=row.version)

    @classmethod
    def read(cls, form: Mapping[str, str]) -> KnowledgeForm:
        return cls(
            type=form.get("type", ""),
            content=_clean_text(form.get("content", "")),
            context=_clean_text(form.get("context", "")),
            agent_id=form.get("agent_id", ""),
            entity_type_id=form.get("entity_type_id", ""),
            confirm=form.get("confirm", ""),
            pinned=form.get("pinned") == "1",
            reason=form.get("reason", "").strip(),
            version=parse_count(form.get("version")) or 0,
        )

    def asking(self, unanswered: Unanswered) -> KnowledgeForm:
        return replace(self, findings=unanswered.findings, confirm=confirmation_of(unanswered.findings))

    def as_changes(self) -> dict[str, Any]:
        ids = {name: read_choice(getattr(self, name), name) for name in ("agent_id", "entity_type_id")}
        words = {"type": self.type, "content": self.content, "context": self.context or None}
        return {**words, **ids, "pinned": self.pinned}

    def refused(self, refusal: Problem) -> KnowledgeForm:
        """The same form with a sentence under what does not fit; an error without a field goes under the text."""
        fields = refusal.fields if isinstance(refusal, Invalid) else {}
        errors = fields or {"content": refusal.detail}
        if not hidden_signs(self.content) and not hidden_signs(self.context):
            return replace(self, errors=errors)
        # What is offered to be saved is what can be seen: a person who saves again has read every byte of it.
        errors = {name: f"{text} Removed them below. Check the text and save again." for name, text in errors.items()}
        return replace(self, errors=errors, content=strip_hidden(self.content), context=strip_hidden(self.context))

    def overtaken(self, stale: Stale) -> KnowledgeForm:
        current = dict(stale.current or {})
        return replace(self, errors={"content": stale.detail}, theirs=current, version=current.get("version", 0))

    @property
    def difference(self) -> list[Part]:
        """What they changed and I did not, as words."""
        return word_diff(str((self.theirs or {}).get("content", "")), self.content)


def _clean_text(text: str) -> str:
    """What was typed, without the line breaks around it and the spaces at its end that a text field invites."""
    return text.replace("\r\n", "\n").lstrip("\n").rstrip()


def read_choice(text: str, field: str = "") -> UUID | None:
    """What was picked from a list of rows, agents or types; nothing when nothing was."""
    found = parse_id(text)
    if text and found is None:
        sentence = "Choose one from the list."
        raise Invalid(sentence, {field: sentence} if field else None)
    return found
