"""Train the machine-feedback gate and say how it does on lines it has not seen: `python -m scripts.fit_gate [--write]`.

Always gives the same weights. Needs numpy alone and takes about a minute.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from typing import Any

import numpy as np

from app.learning.gate.features import features_of
from app.learning.gate.model import BUCKETS, LABELS, WEIGHTS, buckets_of
from app.learning.gate.reading import read_message, tokens_of
from app.text.embeddings import embed
from scripts.gate_messages import Composer, Example, read_phrases, read_trades

TRAIN_TRADES = ("trades_a.txt", "trades_b.txt", "trades_c.txt", "trades_d.txt", "trades_e.txt")
EACH = 350
MIN_TOPICS = 8
MIN_COUNT = 4
EPOCHS = 12
BATCH = 256
RATE = 0.02
DECAY = 1e-5
DROPPED = 0.3
Array = Any


def training_examples() -> list[Example]:
    return Composer(read_trades(*TRAIN_TRADES), read_phrases("phrases_train.txt"), 1).examples(EACH)


def held_examples() -> list[Example]:
    composer = Composer(read_trades("trades_held.txt"), read_phrases("phrases_held.txt"), 7)
    return [example for _ in range(3) for example in composer.examples(20)]


def vocabulary_of(examples: list[Example]) -> frozenset[str]:
    """The words that are used about many topics. Others would teach what a trade is about."""
    topics: dict[str, set[str]] = defaultdict(set)
    for example in examples:
        about = example.turns[-1 if example.target is None else example.target].user
        for token in set(tokens_of(example.message)):
            topics[token].add(about)
    return frozenset(token for token, seen in topics.items() if len(seen) >= MIN_TOPICS)


class Rows:
    """Examples as the model reads them: their buckets one after the other, where each begins, vectors and labels."""

    def __init__(self, examples: list[Example], vocabulary: frozenset[str], known: Array | None = None) -> None:
        lists = [buckets_of(features_of(read_message(e.message, e.turns, vocabulary))) for e in examples]
        if known is None:
            known = np.bincount(np.concatenate(lists), minlength=BUCKETS) >= MIN_COUNT
        self.known = known
        self.rows = [np.asarray([place for place in one if known[place]], dtype=np.int64) for one in lists]
        self.weight = [np.float32((len(one) + 1) ** -0.5) for one in lists]
        self.vectors = np.asarray(embed([e.message for e in examples]), dtype=np.float32)
        self.labels = np.asarray([LABELS.index(e.label) for e in examples])

    def flat(self, which: Array) -> tuple[Array, Array, Array]:
        """Buckets, the example of each, and its weight, for some of the examples."""
        places = np.concatenate([self.rows[i] for i in which])
        counts = [len(self.rows[i]) for i in which]
        weights = np.asarray([self.weight[i] for i in which], dtype=np.float32)
        return places, np.repeat(np.arange(len(which)), counts), np.repeat(weights, counts)


def softmax(scores: Array) -> Array:
    grown = np.exp(scores - scores.max(axis=1, keepdims=True))
    return grown / grown.sum(axis=1, keepdims=True)


def scores_of(weights: list[Array], places: Array, owner: Array, scale: Array, vectors: Array) -> Array:
    taken = weights[0][places] * scale[:, None]
    sums = np.stack([np.bincount(owner, taken[:, k], minlength=len(vectors)) for k in range(len(LABELS))], axis=1)
    return sums + vectors @ weights[1] + weights[2]


def fit(rows: Rows, seed: int = 0) -> list[Array]:
    """Softmax regression by Adam, with features left out at random so that no single one decides."""
    random = np.random.default_rng(seed)
    kinds = len(LABELS)
    weights = [np.zeros((BUCKETS, kinds)), np.zeros((rows.vectors.shape[1], kinds)), np.zeros(kinds)]
    first, second = [np.zeros_like(w) for w in weights], [np.zeros_like(w) for w in weights]
    step, total = 0, len(rows.labels)
    for epoch in range(EPOCHS):
        order = random.permutation(total)
        rate = RATE * (1 - epoch / EPOCHS)
        for start in range(0, total, BATCH):
            which = order[start : start + BATCH]
            places, owner, scale = rows.flat(which)
            scale = scale * (random.random(len(scale)) > DROPPED) / (1 - DROPPED)
            vectors = rows.vectors[which]
            miss = softmax(scores_of(weights, places, owner, scale, vectors))
            miss[np.arange(len(which)), rows.labels[which]] -= 1
            miss /= len(which)
            spread = miss[owner] * scale[:, None]
            table = np.stack([np.bincount(places, spread[:, k], minlength=BUCKETS) for k in range(kinds)], axis=1)
            step += 1
            for i, slope in enumerate((table, vectors.T @ miss, miss.sum(axis=0))):
                slope = slope + DECAY * weights[i]
                first[i] = 0.9 * first[i] + 0.1 * slope
                second[i] = 0.999 * second[i] + 0.001 * slope**2
                weights[i] -= rate * (first[i] / (1 - 0.9**step)) / (np.sqrt(second[i] / (1 - 0.999**step)) + 1e-8)
    return weights


def write(weights: list[Array], vocabulary: frozenset[str]) -> None:
    step = np.float32(np.abs(weights[0]).max() / 127)
    np.savez_compressed(
        WEIGHTS,
        table=np.round(weights[0] / step).astype(np.int8),
        step=step,
        vector=weights[1].astype(np.float32),
        bias=weights[2].astype(np.float32),
        vocabulary=np.frombuffer("\n".join(sorted(vocabulary)).encode(), dtype=np.uint8),
    )


def report(weights: list[Array], rows: Rows) -> None:
    """Precision and recall of verdicts at several confidences."""
    chances = softmax(scores_of(weights, *rows.flat(np.arange(len(rows.labels))), rows.vectors))
    verdict = chances[:, 1:].argmax(axis=1) + 1
    sure = chances[np.arange(len(verdict)), verdict]
    right = verdict == rows.labels
    judged = int((rows.labels > 0).sum())
    for least in (0.4, 0.5, 0.6, 0.7, 0.8, 0.9):
        said = sure >= least
        print(
            f"{least:.2f}  said {said.sum():4}  precision {(said & right).sum() / max(1, said.sum()):.3f}"
            f"  recall {(said & right).sum() / judged:.3f}"
        )


def main() -> None:
    train = training_examples()
    vocabulary = vocabulary_of(train)
    rows = Rows(train, vocabulary)
    weights = fit(rows)
    print(f"{len(train)} messages, {len(vocabulary)} words, {int(rows.known.sum())} buckets in use")
    report(weights, Rows(held_examples(), vocabulary, rows.known))
    if "--write" in sys.argv[1:]:
        write(weights, vocabulary)


if __name__ == "__main__":
    main()
