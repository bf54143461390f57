"""Train one of the gate's networks by Adam, with numpy alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from app.learning.gate.model import LABELS
from app.learning.gate.network import WIDTHS, row_width
from app.text.embeddings import DIMENSIONS

HIDDEN, FILTERS = 48, 48
EPOCHS, BATCH, RATE, DECAY = 14, 64, 0.003, 2e-5
DROPPED, WORDS_DROPPED = 0.5, 0.15
# A label is believed by so much less than wholly: people who write examples err.
DOUBT = 0.05
Array = Any
Weights = dict[str, Array]


def first_weights(random: np.random.Generator) -> Weights:
    found = {
        "in": random.normal(0, 0.08, (row_width(), HIDDEN)),
        "in_bias": np.zeros(HIDDEN),
        "out": random.normal(0, 0.1, (FILTERS * len(WIDTHS), len(LABELS))),
        "out_bias": np.zeros(len(LABELS)),
    }
    for width in WIDTHS:
        found[f"filter{width}"] = random.normal(0, (width * HIDDEN) ** -0.5, (width * HIDDEN, FILTERS))
        found[f"filter{width}_bias"] = np.zeros(FILTERS)
    return {name: values.astype(np.float32) for name, values in found.items()}


def padded(matrices: list[Array], which: Array) -> Array:
    longest = max(len(matrices[i]) for i in which)
    found = np.zeros((len(which), longest, row_width()), dtype=np.float32)
    for place, i in enumerate(which):
        found[place, : len(matrices[i])] = matrices[i]
    return found


def softmax(scores: Array) -> Array:
    grown = np.exp(scores - scores.max(axis=1, keepdims=True))
    return grown / grown.sum(axis=1, keepdims=True)


def batches(lengths: Array, random: np.random.Generator) -> list[Array]:
    """Examples in random order, those of like length together."""
    order = random.permutation(len(lengths))
    chunks = [
        chunk[np.argsort(lengths[chunk], kind="stable")] for chunk in np.array_split(order, len(order) // 1024 + 1)
    ]
    sorted_order = np.concatenate(chunks)
    found = [sorted_order[start : start + BATCH] for start in range(0, len(order), BATCH)]
    return [found[i] for i in random.permutation(len(found))]


def train(matrices: list[Array], labels: Array, seed: int) -> Weights:
    random = np.random.default_rng(seed)
    weights = first_weights(random)
    first = {name: np.zeros_like(values) for name, values in weights.items()}
    second = {name: np.zeros_like(values) for name, values in weights.items()}
    lengths, step = np.array([len(matrix) for matrix in matrices]), 0
    for epoch in range(EPOCHS):
        rate = RATE * (1 - epoch / EPOCHS)
        for which in batches(lengths, random):
            step += 1
            slopes = slopes_of(weights, padded(matrices, which), labels[which], random)
            for name, values in weights.items():
                slope = slopes[name] + DECAY * values
                first[name] = 0.9 * first[name] + 0.1 * slope
                second[name] = 0.999 * second[name] + 0.001 * slope**2
                moved = first[name] / (1 - 0.9**step) / (np.sqrt(second[name] / (1 - 0.999**step)) + 1e-8)
                values -= rate * moved
    return weights


def slopes_of(weights: Weights, rows: Array, labels: Array, random: np.random.Generator) -> Weights:
    """How the loss of a batch changes with each weight. Words and matches are left out at random."""
    count, length, width = rows.shape
    real = rows[:, :, -1:].copy()
    rows[:, :, :DIMENSIONS] *= (random.random((count, length)) > WORDS_DROPPED)[..., None]
    before = rows @ weights["in"] + weights["in_bias"]
    hidden = np.maximum(before, 0) * real
    matches = [match(weights, hidden, size) for size in WIDTHS]
    kept = (random.random((count, FILTERS * len(WIDTHS))) > DROPPED) / np.float32(1 - DROPPED)
    best = np.concatenate([strength for _, _, strength in matches], axis=1) * kept.astype(np.float32)
    wanted = np.full((count, len(LABELS)), DOUBT / len(LABELS))
    wanted[np.arange(count), labels] += 1 - DOUBT
    miss = ((softmax(best @ weights["out"] + weights["out_bias"]) - wanted) / count).astype(np.float32)
    slopes = {"out": best.T @ miss, "out_bias": miss.sum(axis=0)}
    back = (miss @ weights["out"].T) * kept.astype(np.float32)
    to_hidden = np.zeros_like(hidden)
    each = np.arange(count)[:, None]
    for place, (size, (runs, where, strength)) in enumerate(zip(WIDTHS, matches, strict=True)):
        part = back[:, place * FILTERS : (place + 1) * FILTERS] * (strength > 0)
        slopes[f"filter{size}"] = np.einsum("bf,bfd->df", part, runs[each, where], optimize=True)
        slopes[f"filter{size}_bias"] = part.sum(axis=0)
        to_runs = np.zeros_like(runs)
        np.add.at(to_runs, (each, where), part[:, :, None] * weights[f"filter{size}"].T[None])
        for at in range(size):
            to_hidden[:, at : length - size + 1 + at] += to_runs[:, :, at * HIDDEN : (at + 1) * HIDDEN]
    to_rows = to_hidden * (before > 0) * real
    slopes["in"] = rows.reshape(-1, width).T @ to_rows.reshape(-1, HIDDEN)
    slopes["in_bias"] = to_rows.sum(axis=(0, 1))
    return slopes


def match(weights: Weights, hidden: Array, size: int) -> tuple[Array, Array, Array]:
    """All runs of so many rows, where each filter matches best, and how well."""
    length = hidden.shape[1]
    runs = np.concatenate([hidden[:, at : length - size + 1 + at] for at in range(size)], axis=2)
    found = runs @ weights[f"filter{size}"] + weights[f"filter{size}_bias"]
    where = found.argmax(axis=1)
    return runs, where, np.maximum(np.take_along_axis(found, where[:, None], 1)[:, 0], 0)
