"""Whether a rule is there already, or was turned down."""

from collections.abc import Sequence
from uuid import UUID

from app.learning.hygiene.checks import Row, compare
from app.learning.hygiene.words import content_stems
from app.learning.review.types import Proposal, Rule
from app.learning.rules import PAIR, Form, read_forms
from app.text.embeddings import embed, nearness
from app.text.words import IDENTIFIER

LIVE = ("active", "proposed")


class KnownRules:
    """The rules of a workspace, ready to be compared with."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = [rule for rule in rules if rule.rejected or rule.state in LIVE]
        self._vectors = embed([rule.content for rule in self._rules])

    def find_same(self, proposal: Proposal) -> Rule | None:
        """The rule that says the same for the same agents and records; one in use before one that was turned down."""
        if not self._rules:
            return None
        row = Row(proposal.content, proposal.context, UUID(int=1), proposal.agent_id, proposal.entity_type_id)
        near = nearness(embed([proposal.content])[0], self._vectors)
        same = [
            (rule.rejected, -by, rule.id, rule)
            for rule, by in zip(self._rules, near, strict=True)
            if orders_same(proposal, rule)
            or ((finding := compare(row, _as_row(rule), by)) and finding.check == "duplicate")
        ]
        return min(same, key=lambda one: one[:3])[-1] if same else None


def orders_same(proposal: Proposal, rule: Rule | Proposal) -> bool:
    """Whether a rule for the same agents and records orders what a proposal does, tool by tool and value by value, and
    on an occasion that is not another."""
    if (proposal.agent_id, proposal.entity_type_id) != (rule.agent_id, rule.entity_type_id):
        return False
    mine, its = _orders(proposal.content), _orders(rule.content)
    whens = [content_stems(f"{one.context or ''} {read_forms(one.content, (), ())[1]}") for one in (proposal, rule)]
    return bool(mine) and mine <= its and bool(whens[0] & whens[1])


def _orders(text: str) -> frozenset[Form]:
    """The settings and forbidden tools in a text. That a tool is named says too little."""
    names = IDENTIFIER.findall(text)
    return frozenset(form for form in read_forms(text, names, PAIR.findall(text))[0] if form[0] != "prefers")


def _as_row(rule: Rule) -> Row:
    return Row(rule.content, rule.context, rule.id, rule.agent_id, rule.entity_type_id, rule.state)
