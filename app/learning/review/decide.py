"""What becomes of one group of signals: a rule to propose, more evidence for one that is there, or neither."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property
from uuid import UUID

from app.learning.hygiene.checks import Named, Row, World, check_alone, overlap
from app.learning.hygiene.prompt_talk import find_prompt_talk
from app.learning.review.background import Background, read_background
from app.learning.review.claims import claims_of, find_disputed, shared_values, source_of, values_in
from app.learning.review.clarity import CLEAR, Terms, read_terms, score_signal, score_text
from app.learning.review.groups import Group
from app.learning.review.merge import KnownRules, is_paraphrase, orders_same
from app.learning.review.orders import instructions_of
from app.learning.review.types import Agent, EntityType, KnownPattern, Merge, Pattern, Proposal, Rule, Signal
from app.learning.review.wording import write_rule

UNCLEAR = "None of these says what to do instead."
SUSPECT = "Its words speak to a model. A person decides."
REJECTED = "A person rejected a rule that says the same."
KNOWN = "The rule says this already."
OUTNUMBERED = "More people say the opposite."
DISPUTED = "People say different things."
ALONE = "replay_failure"
NOTICED = {"replay_failure": "failed replay", "session_failure": "failed session"}
# People who say the same in nearly the same words are clear enough together.
ALIKE = 1.5
# An instruction by itself is clear from here on, whatever is said around it.
CLEAR_ORDER = 1.2


@dataclass
class Decisions:
    """What is decided so far."""

    proposals: list[Proposal] = field(default_factory=list)
    merges: list[Merge] = field(default_factory=list)
    dismissed: dict[UUID, str] = field(default_factory=dict)
    pending: dict[UUID, str] = field(default_factory=dict)

    def decided(self) -> set[UUID]:
        rules: list[Proposal | Merge] = [*self.proposals, *self.merges]
        return {id for one in rules for id in one.signal_ids} | self.dismissed.keys() | self.pending.keys()


@dataclass(frozen=True)
class Workspace:
    """What a group is judged with. `signals` is the whole batch, which shows what is usual."""

    agents: Sequence[Agent]
    kinds: Sequence[EntityType]
    rules: Sequence[Rule]
    signals: Sequence[Signal]
    today: date
    known: Sequence[KnownPattern] = ()

    @cached_property
    def terms(self) -> Terms:
        return read_terms(self.agents, self.kinds)

    @cached_property
    def background(self) -> Background:
        return read_background(self.signals)

    @cached_property
    def known_rules(self) -> KnownRules:
        return KnownRules(self.rules)

    @cached_property
    def rules_of_known(self) -> dict[UUID, Rule]:
        """The rules that were proposed for the patterns of earlier reviews."""
        rules = {rule.id: rule for rule in self.rules}
        return {one.id: rules[one.rule_id] for one in self.known if one.rule_id in rules}

    @cached_property
    def world(self) -> World:
        owners: dict[str, set[UUID]] = {}
        for agent in self.agents:
            for tool in agent.tools:
                owners.setdefault(tool.name, set()).add(agent.id)
        return World(
            [Named(agent.id, agent.slug, agent.name) for agent in self.agents],
            [Named(kind.id, kind.slug, kind.name) for kind in self.kinds],
            frozenset(field for kind in self.kinds for field in kind.fields),
            {tool: frozenset(ids) for tool, ids in owners.items()},
        )


def is_enough(signals: Sequence[Signal]) -> bool:
    """Two sessions and two people, an admin's flag, or a failed replay. Rows of the system count by their session."""
    if any(_speaks_alone(signal) for signal in signals):
        return True
    people = {source_of(signal) for signal in signals}
    return len(people) > 1 and len({signal.session_id for signal in signals}) > 1


def decide(group: Group, members: Sequence[Signal], workspace: Workspace, made: Decisions) -> None:
    """Add to the decisions what becomes of a group. A group without enough evidence is left out. Rows that contradict
    each other do not share a rule."""
    if not is_enough(members):
        return
    lost, tied = find_disputed(members)
    made.pending |= dict.fromkeys(sorted(lost), OUTNUMBERED) | dict.fromkeys(sorted(tied - lost), DISPUTED)
    members = [signal for signal in members if signal.id not in lost | tied]
    if not members or not is_enough(members):
        return
    ids = tuple(signal.id for signal in members)
    if not (group.likeness >= ALIKE or _is_clear(members, workspace.terms)):
        made.pending |= dict.fromkeys(ids, UNCLEAR)
        return
    draft = write_rule(members, workspace.agents, workspace.kinds, workspace.terms, workspace.background)
    if draft is None or _is_vague(draft.content, workspace):
        made.pending |= dict.fromkeys(ids, UNCLEAR)
    elif find_prompt_talk(draft.content):
        made.pending |= dict.fromkeys(ids, SUSPECT)
    else:
        _propose(
            Proposal(draft.type, draft.content, draft.context, *_scope(group.pattern), ids, count_evidence(members)),
            members,
            workspace,
            made,
            workspace.rules_of_known.get(group.pattern.known_id) if group.pattern.known_id else None,
        )


def _propose(
    proposal: Proposal, members: Sequence[Signal], workspace: Workspace, made: Decisions, before: Rule | None
) -> None:
    same = workspace.known_rules.find_same(proposal)
    if same is None and before and before.rejected and is_paraphrase(proposal.content, before):
        same = before
    if same is None:
        _add(proposal, members, workspace, made)
    elif same.rejected:
        made.dismissed |= dict.fromkeys(proposal.signal_ids, REJECTED)
    else:
        made.merges.append(Merge(same.id, proposal.signal_ids, KNOWN))


def _add(proposal: Proposal, members: Sequence[Signal], workspace: Workspace, made: Decisions) -> None:
    """Propose a rule once: another group that asks for the same adds its evidence. A flag's words come first."""
    same = (n for n, other in enumerate(made.proposals) if orders_same(proposal, other) or _repeats(proposal, other))
    place = next(same, None)
    if place is None:
        made.proposals.append(proposal)
        return
    other = made.proposals[place]
    rows = {signal.id: signal for signal in workspace.signals}
    first, second = (proposal, other) if any(one.admin_flag for one in members) else (other, proposal)
    ids = (*first.signal_ids, *second.signal_ids)
    made.proposals[place] = replace(
        first,
        context=first.context or second.context,
        signal_ids=ids,
        reason=count_evidence([rows[id] for id in ids]),
    )


def _repeats(proposal: Proposal, other: Proposal) -> bool:
    """Whether two rules have the same words, and some agent would get both."""
    rows = (Row(one.content, agent_id=one.agent_id, entity_type_id=one.entity_type_id) for one in (proposal, other))
    return proposal.content == other.content and overlap(*rows)


def _scope(pattern: Pattern) -> tuple[UUID | None, UUID | None]:
    return pattern.agent_id, pattern.entity_type_id


def _speaks_alone(signal: Signal) -> bool:
    return signal.admin_flag or signal.kind == ALONE


def _is_clear(signals: Sequence[Signal], terms: Terms) -> bool:
    """Whether somebody says what to do, or two people how it is."""
    return (
        bool(shared_values(signals))
        or any(_turns_down(signal) for signal in signals)
        or any(
            _speaks_alone(signal)
            or score_signal(signal, terms) >= CLEAR
            or score_text(" ".join(instructions_of(signal.comment or signal.follow_up or "")), terms) >= CLEAR_ORDER
            for signal in signals
        )
    )


def _turns_down(signal: Signal) -> bool:
    """Whether a row names a value in place of one that its answer had."""
    had = values_in(signal.answer or "")
    return any(claim.values - had and claim.refused & had for claim in claims_of(signal))


def _is_vague(content: str, workspace: Workspace) -> bool:
    return any(one.check == "vague" for one in check_alone(Row(content), workspace.world, workspace.today))


def count_evidence(signals: Sequence[Signal]) -> str:
    """How many people say it, what the system noticed, and in how many sessions."""
    people = len({signal.author_id for signal in signals if signal.author_id})
    system = {signal.session_id: signal.kind for signal in signals if not signal.author_id}
    noticed = Counter(NOTICED.get(kind, "system signal") for kind in system.values())
    sessions = len({signal.session_id for signal in signals})
    parts = [_count(people, "person", "people")] if people else []
    parts += [_count(number, what, f"{what}s") for what, number in sorted(noticed.items())]
    flag = ", with an admin's flag" if any(signal.admin_flag for signal in signals) else ""
    return f"{' and '.join(parts)} in {_count(sessions, 'session', 'sessions')}{flag}."


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
