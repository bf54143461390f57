"""Fit the weights by which a reviewer compares two signals (`app/learning/review/affinity.py`) on the half of the
labelled week that is for tuning, and print them.

    python -m scripts.fit_review

A logistic regression without negative weights: each channel is a reason to belong together, never one against it. It
runs with the encoder's vectors and without. The weight of topics is not fitted: three of the twenty patterns of that
half are about a date, a currency or a tax, so it would count twice what is good elsewhere.
"""

from __future__ import annotations

import json
from typing import Any

import numpy

from app.learning.review.affinity import channels
from app.learning.review.groups import name_tools_and_fields
from app.learning.review.moments import read_moment
from app.learning.review.noise import find_noise, is_suspect, says_something
from app.learning.review.sentences import SentenceVectors
from scripts.review_weeks import Week, id_of, read_week

PENALTY, STEP, ROUNDS = 3.0, 0.002, 2500


def fit(week: Week, *, encoded: bool) -> dict[str, float]:
    """The weight of each channel, and the bias under the name "bias"."""
    rows = [row for row in week.signals if not is_suspect(row) and find_noise(row) is None and says_something(row)]
    group = {id_of(name): one["id"] for one in week.labels["patterns"] for name in one["feedback"]}
    labels = [group.get(row.id, str(row.id)) for row in rows]
    moments = [read_moment(row, week.entity_types) for row in rows]
    names = name_tools_and_fields(week.agents, week.entity_types)
    sentences = SentenceVectors().encode([moment.said for moment in moments]) if encoded else None
    agents = [row.agent_id for row in rows]
    made = {name: make() for name, make in channels(moments, agents, names, sentences).items() if name != "topics"}
    pairs = numpy.triu_indices(len(rows), 1)
    given = numpy.stack([(matrix @ matrix.T)[pairs] for matrix in made.values()], axis=1)
    same = numpy.asarray([labels[a] == labels[b] for a, b in zip(*pairs, strict=True)], dtype=float)
    weights = _descend(given, same)
    return {name: round(float(weight), 2) for name, weight in zip([*made, "bias"], weights, strict=True)}


def _descend(given: Any, same: Any) -> Any:
    given = numpy.hstack([given, numpy.ones((len(given), 1))])
    weights = numpy.zeros(given.shape[1])
    for _ in range(ROUNDS):
        guess = 1 / (1 + numpy.exp(-given @ weights))
        slope = given.T @ (guess - same)
        slope[:-1] += PENALTY * weights[:-1]
        weights -= STEP * slope
        weights[:-1] = numpy.maximum(weights[:-1], 0)
    return weights


if __name__ == "__main__":
    for encoded in (True, False):
        print(json.dumps(fit(read_week("dev"), encoded=encoded), indent=2))
