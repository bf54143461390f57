"""Whether a rule is there already, or was turned down."""

from collections.abc import Sequence
from itertools import product
from uuid import UUID

from app.learning.hygiene.checks import Row, compare, overlap
from app.learning.hygiene.contradictions import shared_words
from app.learning.hygiene.words import content_stems
from app.learning.review.claims import contradicts
from app.learning.review.clarity import split_sentences
from app.learning.review.types import Proposal, Rule
from app.learning.rules import PAIR, Form, read_forms
from app.text.embeddings import embed, nearness
from app.text.words import IDENTIFIER

LIVE = ("active", "proposed")
# What a person turned down is recognised in looser words than a rule that is there.
REJECTED_NEARNESS, REJECTED_WORDS, SAME_COMPLAINT = 0.6, 0.45, 0.4


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
        if same:
            return min(same, key=lambda one: one[:3])[-1]
        rejected = {rule.id: rule for rule in self._rules if rule.rejected}
        again = find_rejected(row, [_as_row(rule) for rule in rejected.values()])
        return rejected[again] if again else None


def find_rejected(row: Row, rejected: Sequence[Row]) -> UUID | None:
    """The rejected rule of which a sentence, or the whole, is said again in other words. Another value is another
    rule."""
    theirs = [(other.id, part) for other in rejected if overlap(row, other) for part in _parts(other.content)]
    vectors, parts = embed([part for _, part in theirs]), _parts(row.content)
    for mine, vector in zip(parts, embed(parts), strict=True):
        for (id, part), near in zip(theirs, nearness(vector, vectors), strict=True):
            alike = near >= REJECTED_NEARNESS and shared_words(mine, part) >= REJECTED_WORDS
            if alike and not contradicts(mine, part):
                return id
    return None


def is_paraphrase(content: str, rule: Rule) -> bool:
    """Whether a rule for the complaint of which another was rejected says something near to that one."""
    [near] = nearness(embed([content])[0], embed([rule.content]))
    return near >= SAME_COMPLAINT and not contradicts_any(content, rule.content)


def contradicts_any(content: str, other: str) -> bool:
    return any(contradicts(mine, part) for mine, part in product(_parts(content)[1:], _parts(other)[1:]))


def _parts(content: str) -> list[str]:
    """A rule as a whole, and its sentences without the example."""
    return [content, *(part for part in split_sentences(content) if not part.startswith("For example"))]


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
