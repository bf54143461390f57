"""What two sessions changed, in pairs. It decides."""

from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Protocol

from app.evals.compare.dimensions import CREATED, UPDATED, Dimension, Divergence, leaf_divergences, standard_dimension
from app.evals.compare.effects import UPDATED as UPDATE
from app.evals.compare.effects import Effect
from app.text.values import Leaves, likeness

# With more candidates than this, the next one is taken instead of the best match, so that time stays linear.
MAX_PAIRS = 2_500


def effect_dimensions(
    golden: Sequence[Effect], replay: Sequence[Effect], *, put_right: bool = False
) -> list[Dimension]:
    """What was created and what was updated, each as one dimension that decides. `put_right` says that the golden's
    side is not what was recorded but what should have happened."""
    made, changed = (
        [[one for one in side if (one.kind == UPDATE) == update] for side in (golden, replay)]
        for update in (False, True)
    )
    return [
        _effects(CREATED, "created", made[0], made[1], put_right),
        _effects(UPDATED, "updated", changed[0], changed[1], put_right),
    ]


def _effects(name: str, done: str, golden: list[Effect], replay: list[Effect], put_right: bool) -> Dimension:
    if not golden and not replay:
        return standard_dimension(
            name, 1.0, f"changed nothing, as {'expected' if put_right else 'before'}", decides=True
        )
    pairs, lost, added = pair_effects(golden, replay)
    total, found = 0.0, []
    for before, after in pairs:
        like = 1.0 if before.print == after.print else likeness(before.leaves, after.leaves)
        total += like
        if like < 1.0:
            seqs = (before.sequence or None, after.sequence or None)
            # The first part of a path says `fields`; the path of the target is that one word.
            found += leaf_divergences(
                name, before.leaves, after.leaves, about=before.words, seqs=seqs, skip=1, put_right=put_right
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
    """Pair items by index, most alike first, each once; ties go to the earlier ones. Identical items come first, and in
    two runs that is most of them: they are found without looking at leaves."""
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
