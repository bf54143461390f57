"""Whether a rule is there already, or was turned down."""

from collections.abc import Sequence
from uuid import UUID

from app.learning.hygiene.checks import Row, compare
from app.learning.review.types import Proposal, Rule
from app.text.embeddings import embed, nearness

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
            if (finding := compare(row, _as_row(rule), by)) and finding.check == "duplicate"
        ]
        return min(same, key=lambda one: one[:3])[-1] if same else None


def _as_row(rule: Rule) -> Row:
    return Row(rule.content, rule.context, rule.id, rule.agent_id, rule.entity_type_id, rule.state)
