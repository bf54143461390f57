"""Checks of knowledge rows that need no language model. A finding says what is wrong, quoting the words, and what
would put it right.

Thresholds are fitted on labelled pairs (`scripts/fit_hygiene.py`); docs/decisions/0008-hygiene.md has the figures.
"""

import re
import unicodedata
from calendar import monthrange
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import date
from uuid import UUID

from app.learning.hygiene.contradictions import find_contradiction, shared_words, tells_apart
from app.learning.hygiene.prompt_talk import find_prompt_talk, shorten
from app.learning.hygiene.words import EMPTY, NAME, bag, content_stems, stem
from app.text.hidden_characters import describe_hidden, mixed_words, name_of, strip_hidden
from app.text.words import IDENTIFIER, TOKEN, quotations, without_quotations

CHECKS = ("duplicate", "contradiction", "vague", "unscoped", "addresses the model", "hidden", "stale")
DUPLICATE_NEARNESS = 0.59
RELATED_NEARNESS = 0.54
MIN_SHARED_WORDS = 0.65
MIN_WORDS = 3
UNUSED_DAYS = 60
NO_ID = UUID(int=0)
QUOTE_LENGTH = 80

EMPTY_STEMS = frozenset(map(stem, EMPTY))
BEFORE_A_NOUN = bag("a an the each every any no this that one of per another which whose its their our your new for")
# "The deal team" is about something else than a deal.
COMPOUND = bag("team ops lead desk room flow size maker breaker captain list page form with to")
# A rule that sends work to an agent is not a rule for that agent.
TOWARDS = re.compile(r"\b(?:to|ask|tell|cc|notify)\s+(?:the\s+)?$", re.IGNORECASE)


@dataclass(frozen=True)
class Row:
    """A knowledge row as the checks see it. `digest` is the hash of its content, `replaces` the row whose words it
    would change."""

    content: str
    context: str | None = None
    id: UUID = NO_ID
    agent_id: UUID | None = None
    entity_type_id: UUID | None = None
    state: str = "active"
    active_since: date | None = None
    injected: int = 0
    digest: str = ""
    replaces: UUID | None = None


@dataclass(frozen=True)
class Named:
    """An agent or an entity type: what rows can be for."""

    id: UUID
    slug: str
    name: str
    archived: bool = False


@dataclass(frozen=True)
class World:
    """What a workspace has: agents and types (archived ones too), fields, and which agents have which tool.
    `retired_tools` are those that some agent had and none has now."""

    agents: Sequence[Named] = ()
    entity_types: Sequence[Named] = ()
    fields: frozenset[str] = frozenset()
    tools: Mapping[str, frozenset[UUID]] = field(default_factory=dict)
    retired_tools: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Finding:
    """One thing wrong with a row. `other_id` is the row it clashes with; an agent or a type is whose it should be."""

    check: str
    reason: str
    fix: str
    other_id: UUID | None = None
    agent_id: UUID | None = None
    entity_type_id: UUID | None = None


def check_alone(row: Row, world: World, today: date) -> list[Finding]:
    """What is wrong with a row whatever the others say."""
    found = (
        _check_vague(row, world),
        _check_unscoped(row, world),
        _check_prompt_talk(row),
        _check_hidden(row),
        _check_stale(row, world, today),
    )
    return [finding for finding in found if finding]


def compare(row: Row, other: Row, near: float) -> Finding | None:
    """Whether a row contradicts or repeats another that some agent gets with it. `near` is the cosine of the two."""
    if row.id == other.id or not overlap(row, other):
        return None
    same = _normalize(row.content) == _normalize(other.content)
    quoted = shorten(other.content, QUOTE_LENGTH)
    related = not same and near >= RELATED_NEARNESS and _same_occasion(row, other)
    if related and (clash := find_contradiction(row.content, other.content)):
        fix = "Keep the one that holds and let it replace the other, or say in both when each applies."
        return Finding("contradiction", f"It contradicts “{quoted}”: {clash}.", fix, other.id)
    if same or (near >= DUPLICATE_NEARNESS and says_alike(row.content, other.content)):
        reason = f"It says the same as “{quoted}”."
        fix = "Keep the clearer of the two and let it replace the other; both take room in the prompt."
        return Finding("duplicate", reason, fix, other.id)
    return None


def says_alike(a: str, b: str) -> bool:
    """Whether two near texts are one rule. Near alone is not enough: "exclude fees" is near to "exclude costs"."""
    return shared_words(a, b) >= MIN_SHARED_WORDS and not tells_apart(a, b)


def overlap(a: Row, b: Row) -> bool:
    """Whether there is an agent and an entity type that get both rows."""
    agents = a.agent_id is None or b.agent_id is None or a.agent_id == b.agent_id
    types = a.entity_type_id is None or b.entity_type_id is None or a.entity_type_id == b.entity_type_id
    return agents and types


def _same_occasion(a: Row, b: Row) -> bool:
    """Two rules that say when they apply, in words that share nothing, do not meet."""
    if not a.context or not b.context:
        return True
    first, second = (content_stems(text) for text in (a.context, b.context))
    return not first or not second or bool(first & second)


def is_vague(text: str, known: Set[str] = frozenset()) -> bool:
    """Whether a text says too little to be acted on. `known` are the stems of names that say enough by themselves."""
    text = strip_hidden(text)
    if quotations(text) or re.search(r"\d", text) or NAME.search(text) or IDENTIFIER.search(text):
        return False
    words = content_stems(text)
    return not (words & known or any(word.isdigit() for word in words) or len(words - EMPTY_STEMS) >= MIN_WORDS)


def _check_vague(row: Row, world: World) -> Finding | None:
    known = {stem(name) for name in (*world.tools, *world.fields)}
    known |= {stem(word) for kind in world.entity_types if not kind.archived for word in (kind.slug, kind.name)}
    if not is_vague(row.content, known):
        return None
    quoted = shorten(strip_hidden(row.content), QUOTE_LENGTH)
    reason = f"“{quoted}” names no tool, field, record, number or name, and too few of its words say what to do."
    fix = "Say what to do, with what and when: the tool, the field, the figure, the words to use."
    return Finding("vague", reason, fix)


def _check_unscoped(row: Row, world: World) -> Finding | None:
    if row.agent_id or row.entity_type_id:
        return None
    text = without_quotations(strip_hidden(row.content))
    named = {agent.id: found for agent in world.agents if not agent.archived and (found := _mention(agent, text))}
    if any(TOWARDS.search(text[: found.start()]) for found in named.values()):
        return None
    used = sorted(tool for tool in set(IDENTIFIER.findall(text)) if len(world.tools.get(tool, ())) == 1)
    agents = set(named) if len(named) == 1 else {owner for tool in used for owner in world.tools[tool]}
    if len(agents) == 1:
        agent = next(agent for agent in world.agents if agent.id in agents)
        why = f"only {agent.slug} has “{used[0]}”" if len(named) != 1 else f"speaks of “{agent.slug}” only"
        fix = f"Make it a row of the agent {agent.slug}."
        return Finding("unscoped", f"It is for all agents, yet {why}.", fix, agent_id=agent.id)
    kinds = [(kind, word) for kind in world.entity_types if not kind.archived and (word := _names_type(kind, text))]
    if len(kinds) == 1 and not named:
        [(kind, word)] = kinds
        reason, fix = f"It is for every record, yet speaks of “{word}” only.", f"Make it a row of the type {kind.slug}."
        return Finding("unscoped", reason, fix, entity_type_id=kind.id)
    return None


def _mention(agent: Named, text: str) -> re.Match[str] | None:
    """Where a text speaks of an agent. A name of one plain word needs a capital, or "the" or "agent" beside it."""
    name = re.escape(agent.name)
    patterns = [rf"(?<!\w){name}(?!\w)" if " " in agent.name.strip() else rf"\b(?:the\s+{name}|{name}\s+agent)\b"]
    if "-" in agent.slug:
        patterns.append(rf"(?<![\w-]){re.escape(agent.slug)}(?![\w-])")
    if agent.name[:1].isupper():
        patterns.append(rf"(?-i:(?<=\w\s){name}\b)")
    return re.search("|".join(patterns), text, re.IGNORECASE)


def _names_type(kind: Named, text: str) -> str | None:
    """The word by which a text speaks of records of a type: a plural, or the noun behind an article."""
    wanted = {stem(kind.slug), stem(kind.name)}
    tokens: list[str] = TOKEN.findall(text)
    for before, word, after in zip(["", *tokens], tokens, [*tokens[1:], ""], strict=False):
        plural = word.lower().endswith("s") and not word.lower().endswith(("'s", "’s"))
        if stem(word) in wanted and after.lower() not in COMPOUND and (plural or before.lower() in BEFORE_A_NOUN):
            return word
    return None


def _check_prompt_talk(row: Row) -> Finding | None:
    words = find_prompt_talk(row.content) or find_prompt_talk(row.context or "")
    if not words:
        return None
    reason = f"“{words}” speaks to the model about its prompt, its tools or its review, not about the work."
    fix = "Say what holds in the work itself. If you did not write this, find out who did before you keep it."
    return Finding("addresses the model", reason, fix)


def _check_hidden(row: Row) -> Finding | None:
    for text in (row.content, row.context or ""):
        if hidden := describe_hidden(text):
            return Finding("hidden", f"{hidden} No prompt gets such a text.", "Remove them and read the text again.")
        if mixed := mixed_words(text):
            odd = next(sign for sign in mixed[0] if not sign.isascii())
            reason = f"“{mixed[0]}” mixes alphabets: it has {name_of(odd)}."
            return Finding("hidden", reason, "Type the word again in one alphabet.")
    return None


def _check_stale(row: Row, world: World, today: date) -> Finding | None:
    text = without_quotations(strip_hidden(row.content))
    end = last_day(text)
    if end and end[0] < today:
        return Finding("stale", f"“{end[1]}” is past.", "Deactivate it, or give it a new date.")
    if gone := _archived(row, text, world):
        return Finding("stale", gone, "Deactivate it, or name what is used now.")
    if row.state == "active" and row.active_since and not row.injected:
        days = (today - row.active_since).days
        if days >= UNUSED_DAYS:
            reason = f"It has been active for {days} days and was in no prompt."
            return Finding("stale", reason, "Widen its scope or pin it if it matters; deactivate it if not.")
    return None


def _archived(row: Row, text: str, world: World) -> str | None:
    for agent in world.agents:
        if agent.archived and (agent.id == row.agent_id or _mention(agent, text)):
            return f"The agent “{agent.slug}” is archived."
    for tool in sorted(world.retired_tools):
        if re.search(rf"(?<![\w-]){re.escape(tool)}(?![\w-])", text):
            return f"No agent has the tool “{tool}” any more."
    for kind in world.entity_types:
        if kind.archived and (kind.id == row.entity_type_id or _names_type(kind, text)):
            return f"The entity type “{kind.slug}” is archived."
    return None


def _normalize(text: str) -> str:
    """The text as it is compared for equality: no case, no punctuation, one space."""
    folded = unicodedata.normalize("NFKC", strip_hidden(text)).casefold()
    return " ".join(re.findall(r"[\w%=]+", folded))


# Until when a rule says that it holds.

MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()  # noqa: SIM905 - reads better as a text.
_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?"
    r"|nov(?:ember)?|dec(?:ember)?)\.?"
)
# Days first, then months, quarters and years, of which the last day counts.
_DATE = (
    rf"(?:the )?(?:end of )?(?P<date>\d{{4}}-\d{{2}}-\d{{2}}|\d{{1,2}}\.\d{{1,2}}\.\d{{4}}"
    rf"|\d{{1,2}}(?:st|nd|rd|th)? (?:of )?{_MONTH},? \d{{4}}|{_MONTH} \d{{1,2}}(?:st|nd|rd|th)?,? \d{{4}}"
    rf"|{_MONTH} \d{{4}}|Q[1-4] \d{{4}}|20\d\d(?!\d|[.,]\d| [a-z]+s\b| EUR| USD| %))"
)
_UNTIL = (
    r"until|till|through|thru|valid to|up to and including|no later than|expires(?: on)?|ends(?: on)?|ending(?: on)?|by"
)
# "Before 2024" and "signed on" say which records are meant, not how long the rule holds.
ENDINGS = [
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"\b(?:{_UNTIL}) {_DATE}",
        rf"\b(?:for|in|during) {_DATE} only\b",
        rf"\bonly (?:for|in|during) {_DATE}",
    )
]


def last_day(text: str) -> tuple[date, str] | None:
    """The latest day that a text gives as its end, with the words that say so."""
    matches = (match for pattern in ENDINGS for match in pattern.finditer(text))
    found = [(day, match[0]) for match in matches if (day := _read_day(match["date"].lower()))]
    return max(found, default=None)


def _read_day(words: str) -> date | None:
    numbers = [int(number) for number in re.findall(r"\d+", words)]
    month = next((number for number, name in enumerate(MONTHS, start=1) if name in words), 12)
    try:
        if "-" in words:
            return date(*numbers)
        if re.match(r"\d+\.\d", words):
            return date(*reversed(numbers))
        if words.startswith("q"):
            month = numbers.pop(0) * 3
        year = numbers[-1]
        return date(year, month, numbers[0] if len(numbers) == 2 else monthrange(year, month)[1])
    except ValueError:
        return None
