"""The checks that rubrics are made of. Each factory gives a check, and a check states facts about an artifact.

A fact that does not hold is a gap, with a sentence that says what to do about it. A check always states at least one
fact, because a dimension without facts could not fail.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from app.artifacts.model import KnowledgeArtifact, KnowledgeSafetyClass, KnowledgeSurface, ReviewGate
from app.formats.json_schema import fits_schema
from app.learning.hygiene.checks import is_vague

PLACEHOLDER = re.compile(
    r"\s*(?:tbd|tba|todo|fixme|n/?a|none|null|unknown|placeholder|lorem ipsum.*|[.…?–-]*)\s*", re.I
)
CITABLE = re.compile(
    r"https://[^\s/]+\.[^\s/]+\S*|doi:10\.\S+|isbn:[\d-]{10,17}|(?:entity|feedback|interview|person|response|session):\S+"
)
# A record that one of these approved was approved by nobody.
NOBODY = re.compile(r"\s*(?:auto\w*|agent|ai|bot|model|system)\s*", re.I)
TENANT_KEYS = ("tenant", "tenant_id")
MIN_BODY_WORDS = 3


@dataclass(frozen=True)
class Fact:
    """One thing that was looked at, whether it holds, and what to do if it does not."""

    name: str
    holds: bool
    gap: str


Check = Callable[[KnowledgeArtifact], list[Fact]]
RenderabilityProbe = Callable[[KnowledgeSurface], bool]


def is_filled(value: Any) -> bool:
    """Whether a value says something. A list does when each of its items does."""
    if isinstance(value, str):
        return not PLACEHOLDER.fullmatch(value)
    if isinstance(value, Mapping):
        return any(is_filled(inner) for inner in value.values())
    if isinstance(value, list | tuple):
        return bool(value) and all(is_filled(inner) for inner in value)
    return value is not None


def as_text(value: Any) -> str:
    """The words of a value, however deep they are."""
    if isinstance(value, Mapping):
        return " ".join(as_text(inner) for inner in value.values())
    if isinstance(value, list | tuple):
        return " ".join(as_text(inner) for inner in value)
    return "" if value is None else str(value)


def require_evidence_refs(
    draft_statuses: Collection[str], finalized_statuses: Collection[str], *, status: str = "status", least: int = 1
) -> Check:
    """Ask for citable sources once a record is final. A draft is still being grounded, so it owes none."""
    if set(draft_statuses) & set(finalized_statuses):
        raise ValueError("A status cannot be both a draft and final.")

    def check(artifact: KnowledgeArtifact) -> list[Fact]:
        now = str(artifact.fields.get(status))
        if now in draft_statuses:
            return [Fact("sources are not due yet", True, "")]
        known = Fact("status is declared", now in finalized_statuses, f"{status} “{now}” is neither a draft nor final.")
        refs = artifact.evidence_refs
        enough = Fact("has sources", len(refs) >= least, f"Cite at least {least} source{'' if least == 1 else 's'}.")
        return [known, enough, *(_citable(ref.source) for ref in refs)]

    return check


def _citable(source: str) -> Fact:
    found = bool(CITABLE.fullmatch(source.strip()))
    return Fact("source can be looked up", found, f"“{source[:60]}” cannot be looked up. Give a link or an id.")


def require_fields(*names: str, schema: Mapping[str, Any] | None = None) -> Check:
    """Ask for fields with a real value; with the properties of a schema, also for values that fit it."""

    def check(artifact: KnowledgeArtifact) -> list[Fact]:
        fields = artifact.fields
        facts = [Fact(f"{name} is filled", is_filled(fields.get(name)), f"Fill in {name}.") for name in names]
        for name, rule in (schema or {}).items():
            if is_filled(fields.get(name)):
                facts.append(Fact(f"{name} fits", fits_schema(fields[name], rule), f"{name} does not fit its schema."))
        return facts

    return check


def require_actionable_payload(*names: str) -> Check:
    """Ask for fields that someone can act on. Each item of a list has to be concrete."""

    def check(artifact: KnowledgeArtifact) -> list[Fact]:
        return [fact for name in names for fact in _concrete(name, artifact.fields.get(name))]

    return check


def _concrete(name: str, value: Any) -> Iterator[Fact]:
    items = value if isinstance(value, list | tuple) and value else [value]
    for item in items:
        text = as_text(item)
        gap = f"{name}: “{text[:60]}” does not say what to do, with what or when."
        yield Fact(f"{name} is filled", is_filled(item), f"Fill in {name}.")
        yield Fact(f"{name} is concrete", not is_filled(item) or not is_vague(text), gap)


def require_safety_label(gate: ReviewGate, finalized_statuses: Collection[str], *, status: str = "status") -> Check:
    """Ask for a label at least as strict as the loop's, and for a person's approval once a record is final."""

    def check(artifact: KnowledgeArtifact) -> list[Fact]:
        safety, labels = artifact.safety, [str(one) for one in KnowledgeSafetyClass]
        known = safety.label in labels
        strict = known and KnowledgeSafetyClass(safety.label).level >= gate.safety_class.level
        facts = [
            Fact("label is known", known, f"Label it {', '.join(labels[:-1])} or {labels[-1]}."),
            Fact("label is strict enough", strict, f"Label it {gate.safety_class} or stricter."),
            Fact("waits for a person", not safety.auto_approve, f"Let a {gate.reviewer} approve it, not a rule."),
        ]
        if str(artifact.fields.get(status)) in finalized_statuses:
            named = is_filled(safety.reviewed_by) and not NOBODY.fullmatch(safety.reviewed_by)
            facts.append(Fact("a person approved it", named, f"Name the {gate.reviewer} who approved it."))
        return facts

    return check


def require_renderable(surfaces: Collection[KnowledgeSurface] = (), probe: RenderabilityProbe | None = None) -> Check:
    """Ask for a place that exists, and something to read there. With a probe, only the probe says what exists."""

    def check(artifact: KnowledgeArtifact) -> list[Fact]:
        render = artifact.render
        exists = probe(render.surface) if probe else render.surface in surfaces
        body = is_filled(render.body) and len(render.body.split()) >= MIN_BODY_WORDS
        return [
            Fact("surface exists", exists, f"{render.surface} is no place where records are shown."),
            Fact("has a title", is_filled(render.title), "Give it a title."),
            Fact("has a body", body, "There is nothing to read yet."),
        ]

    return check


def assert_tenant_scope(tenant: str) -> Check:
    """Ask that the record, its sources and everything inside it belong to one workspace."""

    def check(artifact: KnowledgeArtifact) -> list[Fact]:
        own = artifact.tenant == tenant
        strange = {ref.tenant for ref in artifact.evidence_refs if ref.tenant not in (None, tenant)}
        inside = {found for found in _tenants_in(artifact.fields) if found != tenant}
        return [
            Fact("belongs to the workspace", own, f"It belongs to “{artifact.tenant}”, not to “{tenant}”."),
            Fact("sources are its own", not strange, f"It cites sources of {', '.join(sorted(map(str, strange)))}."),
            Fact("contents are its own", not inside, f"It contains records of {', '.join(sorted(inside))}."),
        ]

    return check


def _tenants_in(value: Any) -> Iterator[str]:
    """Every workspace that something inside a record says it belongs to."""
    if isinstance(value, Mapping):
        yield from (str(value[key]) for key in TENANT_KEYS if value.get(key))
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    for one in inner:
        yield from _tenants_in(one)
