"""What two sessions changed, which decides; and which tools they called, which decides only as a golden expects it."""

from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Protocol

from app.evals.compare.dimensions import (
    ARGUMENTS,
    CALLS,
    CREATED,
    UPDATED,
    Dimension,
    Divergence,
    leaf_divergences,
    standard_dimension,
)
from app.evals.compare.effects import UPDATED as UPDATE
from app.evals.compare.effects import Effect, plain_values, rename_ids
from app.evals.expected.expectations import Expected
from app.evals.trace import Call
from app.text.values import Leaves, Reader, leaves, likeness, same_leaf

# With more candidates than this, the next one is taken instead of the best match, so that time stays linear.
MAX_PAIRS = 2_500


def effect_dimensions(
    golden: Sequence[Effect], replay: Sequence[Effect], *, put_right: bool = False
) -> list[Dimension]:
    """What was created and what was updated; both decide. `put_right`: the golden's side is the correction."""
    made, changed = (
        [[one for one in side if (one.kind == UPDATE) == update] for side in (golden, replay)]
        for update in (False, True)
    )
    return [_effects(CREATED, "created", made, put_right), _effects(UPDATED, "updated", changed, put_right)]


def _effects(name: str, done: str, sides: list[list[Effect]], put_right: bool) -> Dimension:
    golden, replay = sides
    if not golden and not replay:
        fine = f"changed nothing, as {'expected' if put_right else 'before'}"
        return standard_dimension(name, 1.0, fine, decides=True)
    pairs, lost, added = pair_effects(golden, replay)
    total, found = 0.0, []
    for before, after in pairs:
        like = 1.0 if before.print == after.print else likeness(before.leaves, after.leaves)
        total += like
        if like < 1.0:
            seqs = (before.sequence or None, after.sequence or None)
            # What is expected names a record by its id; the session may know what it is called.
            about = after.words if before.name is None and before.target == after.target else before.words
            # The first part of a path says `fields`; the path of the target is that one word.
            found += leaf_divergences(
                name, before.leaves, after.leaves, about=about, seqs=seqs, skip=1, put_right=put_right
            )
    for one in lost:
        text = f"{one.words} was not {done}"
        found.append(Divergence(name, one.words, one.as_json(), None, text, golden_seq=one.sequence or None))
    for one in added:
        text = f"{one.words} was {done}, which {'should not happen' if put_right else 'did not happen before'}"
        found.append(Divergence(name, one.words, None, one.as_json(), text, replay_seq=one.sequence or None))
    number = len(golden)
    things = "1 thing" if number == 1 else f"{number} things"
    fine = f"{done} {things} as expected" if put_right else f"{done} the same {things.removeprefix('1 ')}"
    return standard_dimension(name, total / max(number, len(replay)), fine, found, decides=True)


def pair_effects(
    golden: Sequence[Effect], replay: Sequence[Effect]
) -> tuple[list[tuple[Effect, Effect]], list[Effect], list[Effect]]:
    """Pair effects of one type: first by target, then greedily by likeness. Also returns those without a partner."""
    aimed: dict[tuple[str, str, str], deque[Effect]] = defaultdict(deque)
    for effect in replay:
        if effect.target is not None:
            aimed[effect.kind, effect.type, str(effect.target)].append(effect)
    pairs: list[tuple[Effect, Effect]] = []
    waiting: dict[tuple[str, str], list[Effect]] = defaultdict(list)
    for effect in golden:
        among = aimed.get((effect.kind, effect.type, str(effect.target))) if effect.target is not None else None
        if among:
            pairs.append((effect, among.popleft()))
        else:
            waiting[effect.kind, effect.type].append(effect)
    taken = {id(effect) for _, effect in pairs}
    left: dict[tuple[str, str], list[Effect]] = defaultdict(list)
    for effect in replay:
        if id(effect) not in taken:
            left[effect.kind, effect.type].append(effect)
    lost: list[Effect] = []
    for key, effects in waiting.items():
        chosen = best_matches(effects, left[key])
        pairs += [(effects[one], left[key][other]) for one, other in chosen]
        lost += [effect for place, effect in enumerate(effects) if place not in {one for one, _ in chosen}]
        left[key] = [effect for place, effect in enumerate(left[key]) if place not in {other for _, other in chosen}]
    return pairs, lost, [effect for effects in left.values() for effect in effects]


class HasLeaves(Protocol):
    """What can be paired by how alike it is."""

    @property
    def print(self) -> str: ...

    @property
    def leaves(self) -> Leaves: ...


def best_matches(golden: Sequence[HasLeaves], replay: Sequence[HasLeaves]) -> list[tuple[int, int]]:
    """Pair items by index, most alike first, each once; ties go to the earlier. Identical ones are found by `print`."""
    places: dict[str, deque[int]] = defaultdict(deque)
    for place, other in enumerate(replay):
        places[other.print].append(place)
    chosen = {place: same.popleft() for place, one in enumerate(golden) if (same := places.get(one.print))}
    waiting = [place for place in range(len(golden)) if place not in chosen]
    free = dict.fromkeys(sorted(place for same in places.values() for place in same))
    if len(waiting) * len(free) > MAX_PAIRS or len(waiting) == len(free) == 1:
        return sorted({**chosen, **dict(zip(waiting, free, strict=False))}.items())
    ranked = sorted((-likeness(golden[one].leaves, replay[at].leaves), one, at) for one in waiting for at in free)
    for _, one, at in ranked:
        if one not in chosen and at in free:
            chosen[one] = at
            del free[at]
    return sorted(chosen.items())


NO_CALLS = "called no tool, as before"


def call_dimensions(
    golden: Sequence[Call], replay: Sequence[Call], expected: Expected, names: tuple[Mapping[Any, str], ...]
) -> list[Dimension]:
    """Which tools were called, and with what. Failed calls do not count on either side."""
    before, after = (
        [_NamedCall(call, renamed) for call in side if not call.failed]
        for side, renamed in zip((golden, replay), names, strict=True)
    )
    if expected.about_calls:
        return _expected_calls(expected, replay, after)
    return [_names_dimension(before, after), _arguments_dimension(before, after)]


class _NamedCall:
    """A call with the ids of things that the session made under the names of both sessions."""

    def __init__(self, call: Call, names: Mapping[Any, str]) -> None:
        self.name, self.sequence, self.tool = call.name, call.sequence, call.tool
        self.arguments = rename_ids(call.arguments, names) if names else call.arguments
        # Equal for arguments that are the same to the letter; others may be equal too.
        self.print = repr(self.arguments)

    @cached_property
    def leaves(self) -> Leaves:
        return leaves(self.arguments)


def _names_dimension(golden: Sequence[_NamedCall], replay: Sequence[_NamedCall]) -> Dimension:
    before, after = Counter(call.name for call in golden), Counter(call.name for call in replay)
    total = before.total() + after.total()
    score = 2 * (before & after).total() / total if total else 1.0
    found = []
    for name in dict.fromkeys([*before, *after]):
        if before[name] != after[name]:
            now = f"called {_times(after[name])}" if after[name] else "never called"
            text = f"{name} was {now} ({_times(before[name])} before)"
            found.append(Divergence(CALLS, name, before[name], after[name], text))
    return standard_dimension(CALLS, score, "called the same tools" if total else NO_CALLS, found)


def _times(number: int) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(number, f"{number} times")


def _arguments_dimension(golden: Sequence[_NamedCall], replay: Sequence[_NamedCall]) -> Dimension:
    before, after = (_by_name(side) for side in (golden, replay))
    total, count, found = 0.0, 0, []
    for name, mine in before.items():
        theirs = after.get(name, [])
        for one, other in best_matches(mine, theirs):
            a, b = mine[one], theirs[other]
            like = 1.0 if a.print == b.print else likeness(a.leaves, b.leaves)
            total, count = total + like, count + 1
            if like < 1.0:
                found += leaf_divergences(ARGUMENTS, a.leaves, b.leaves, about=name, seqs=(a.sequence, b.sequence))
    if not golden and not replay:
        return standard_dimension(ARGUMENTS, 1.0, NO_CALLS)
    fine = "called with the same arguments" if count else "no call in common"
    return standard_dimension(ARGUMENTS, total / count if count else 0.0, fine, found)


def _by_name(calls: Sequence[_NamedCall]) -> dict[str, list[_NamedCall]]:
    found: dict[str, list[_NamedCall]] = defaultdict(list)
    for called in calls:
        found[called.name].append(called)
    return found


def _expected_calls(expected: Expected, made: Sequence[Call], worked: Sequence[_NamedCall]) -> list[Dimension]:
    """Each expected call must occur with at least these arguments, and a forbidden tool must not be called at all."""
    found: list[Divergence] = []
    likes: list[float] = []
    for place, (name, given) in enumerate(expected.calls or ()):
        same = [called for called in worked if called.name == name]
        wanted = Reader().arguments(given, same[0].tool.schema if same else None)
        shares = [covered_share(name, wanted, called.arguments) for called in same]
        likes.append(max(shares, default=0.0))
        if likes[-1] < 1.0:
            text = f"{name} was not called{' with the expected arguments' if shares else ''}"
            found.append(Divergence(CALLS, f"calls[{place}]", {"name": name, "arguments": given}, None, text))
    share = sum(like == 1.0 for like in likes) / len(likes) if likes else 1.0
    for name in expected.no_calls or ():
        called = next((call for call in made if call.name == name), None)
        if called is not None:
            share = 0.0
            text = f"{name} was called, which must not happen"
            found.insert(0, Divergence(CALLS, name, None, name, text, replay_seq=called.sequence))
    fine = "made the expected calls" if likes else "called nothing that must not be called"
    decided = replace(standard_dimension(CALLS, share, fine, found, decides=True), threshold=1.0)
    if not likes:
        return [decided]
    like = sum(likes) / len(likes)
    words = "called with the expected arguments" if like == 1.0 else "not all expected arguments were given"
    return [decided, standard_dimension(ARGUMENTS, like, words)]


def covered_share(name: str, wanted: Any, given: Any) -> float:
    """The share of the wanted arguments that were given. Submitted values may carry their source, which is ignored."""
    share = _share(wanted, given)
    values = [side.get("values") if isinstance(side, dict) else None for side in (wanted, given)]
    if share == 1.0 or name != "submitResponse" or not all(isinstance(one, dict) for one in values):
        return share
    return max(share, _share(*({**side, "values": plain_values(side["values"])} for side in (wanted, given))))


def _share(wanted: Any, given: Any) -> float:
    if not wanted:
        return 1.0
    asked, there = leaves(wanted), leaves(_named_part(wanted, given))
    return sum(path in there and same_leaf(leaf, there[path]) for path, leaf in asked.items()) / len(asked)


def _named_part(wanted: Any, given: Any) -> Any:
    """What was given under the names that are wanted: lists of ids are put in order by those that both have."""
    if not isinstance(wanted, dict) or not isinstance(given, dict):
        return given
    return {name: _named_part(wanted[name], given[name]) for name in wanted if name in given}
