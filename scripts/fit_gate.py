"""Train the machine-feedback gate with `python -m scripts.fit_gate --write`, and say how it does on lines it has not
seen, which works without `--write` too. Needs numpy alone, takes a few minutes, and gives the same weights each time.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from typing import Any

import numpy as np

from app.learning.gate.classify import MIN_CONFIDENCE
from app.learning.gate.features import features_of
from app.learning.gate.model import BUCKETS, LABELS, WEIGHTS, buckets_of, load_model
from app.learning.gate.network import rows_of
from app.learning.gate.reading import Reading, read_message, tokens_of
from app.text.embeddings import embed
from scripts.gate_messages import Composer, Example, read_phrases, read_talks, read_trades
from scripts.gate_network import Weights, softmax, train

TRADES = tuple(f"trades_{letter}.txt" for letter in "abcdefghi")
PHRASES = tuple(f"phrases_{name}.txt" for name in ("train", "more", "contrast", "rest"))
TALKS = tuple(f"talks_{number}.txt" for number in range(1, 19))
HELD = tuple(f"talks_held_{number}.txt" for number in range(1, 5))
# Composed messages of every kind, plain ones, and how often a written one is told.
EACH, PLAIN, COPIES = 70, 300, 3
MIN_TOPICS = 8
MIN_COUNT = 4
EPOCHS = 12
BATCH = 256
RATE = 0.02
DECAY = 1e-5
DROPPED = 0.3
NETWORKS = 3
# Precision comes first: what counts is to be right about so much of the lines that were held back.
MIN_PRECISION = 0.93
Array = Any


def training_examples() -> list[Example]:
    composer = Composer(read_trades(*TRADES), read_phrases(*PHRASES), 1)
    return [
        *composer.examples(EACH),
        *composer.outcomes(read_phrases("outcomes.txt"), EACH),
        *composer.plain(read_phrases("plain.txt"), PLAIN),
        *composer.talks(read_talks(*TALKS), COPIES),
    ]


def held_examples() -> list[Example]:
    return read_talks(*HELD)


def vocabulary_of(examples: list[Example]) -> frozenset[str]:
    """The words that are used about many topics. Others would teach what a trade is about."""
    topics: dict[str, set[str]] = defaultdict(set)
    for example in examples:
        about = example.turns[-1 if example.target is None else example.target].user
        for token in set(tokens_of(example.message)):
            topics[token].add(about)
    return frozenset(token for token, seen in topics.items() if len(seen) >= MIN_TOPICS)


class Rows:
    """Examples as the linear part reads them: the buckets of each, how much one weighs, vectors and labels."""

    def __init__(
        self, examples: list[Example], readings: list[Reading], vocabulary: frozenset[str], known: Array | None = None
    ) -> None:
        lists = [buckets_of(features_of(reading, vocabulary)) for reading in readings]
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


def write(linear: list[Array], networks: list[Weights], vocabulary: frozenset[str], sharpness: float) -> None:
    step = np.float32(np.abs(linear[0]).max() / 127)
    parts = {
        f"net{number}/{name}": values.astype(np.float16)
        for number, one in enumerate(networks)
        for name, values in one.items()
    }
    np.savez_compressed(
        WEIGHTS,
        table=np.round(linear[0] / step).astype(np.int8),
        step=step,
        vector=linear[1].astype(np.float32),
        bias=linear[2].astype(np.float32),
        vocabulary=np.frombuffer("\n".join(sorted(vocabulary)).encode(), dtype=np.uint8),
        sharpness=np.float32(sharpness),
        **parts,
    )


def verdicts_of(examples: list[Example]) -> tuple[Array, Array]:
    """The probabilities that the stored weights give each label of each example, and its true label."""
    load_model.cache_clear()
    model = load_model()
    readings = [read_message(example.message, example.turns) for example in examples]
    vectors = embed([example.message for example in examples])
    chances = [model.probabilities(*both) for both in zip(readings, vectors, strict=True)]
    return np.asarray(chances), np.asarray([LABELS.index(example.label) for example in examples])


def figures(chances: Array, labels: Array, least: float) -> tuple[int, int]:
    """How many verdicts are at least so sure, and how many of these are right."""
    verdict = chances[:, 1:].argmax(axis=1) + 1
    said = chances[np.arange(len(verdict)), verdict] >= least
    return int(said.sum()), int((said & (verdict == labels)).sum())


def sharpness_of(chances: Array, labels: Array) -> float:
    """How far to sharpen the agreement of both readers so that verdicts that count are right often enough."""
    for sharpness in np.arange(1.5, 0.2, -0.02):
        said, right = figures(softmax(sharpness * np.log(chances)), labels, MIN_CONFIDENCE)
        if said and right / said >= MIN_PRECISION:
            return float(sharpness)
    raise ValueError("No sharpness is careful enough.")


def train_all(held: list[Example]) -> None:
    examples = training_examples()
    readings = [read_message(example.message, example.turns) for example in examples]
    vocabulary = vocabulary_of(examples)
    rows = Rows(examples, readings, vocabulary)
    print(f"{len(examples)} messages, {len(vocabulary)} words, {int(rows.known.sum())} buckets in use", flush=True)
    matrices = [rows_of(reading) for reading in readings]
    linear, networks = fit(rows), [train(matrices, rows.labels, seed) for seed in range(NETWORKS)]
    write(linear, networks, vocabulary, 1.0)
    write(linear, networks, vocabulary, sharpness_of(*verdicts_of(held)))


def main() -> None:
    held = held_examples()
    if "--write" in sys.argv[1:]:
        train_all(held)
    chances, labels = verdicts_of(held)
    for least in (0.4, 0.5, 0.6, 0.7, 0.8, 0.9):
        said, right = figures(chances, labels, least)
        print(
            f"{least:.2f}  said {said:4}  precision {right / max(1, said):.3f}  recall {right / (labels > 0).sum():.3f}"
        )


if __name__ == "__main__":
    main()
