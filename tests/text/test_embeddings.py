"""Sentence vectors: without a network, the same each time, loaded once."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from app.text import embeddings
from app.text.embeddings import DIMENSIONS, embed, near_pairs, nearness

ROOT = Path(__file__).resolve().parents[2]
# Run in a process of its own: nothing is loaded yet, every socket is refused, and the home directory holds no cache.
ALONE = """
import logging, socket, sys

def refuse(*args, **kwargs):
    raise AssertionError("The network was asked.")

socket.socket.connect = refuse
socket.socket.connect_ex = refuse
socket.create_connection = refuse
socket.getaddrinfo = refuse

import app.text.embeddings as embeddings
assert not {"numpy", "wordllama", "tokenizers"} & set(sys.modules), "loaded before it was needed"
vector = embeddings.embed(["State the period next to every multiple."])[0]
assert not logging.getLogger().handlers, "the package set up our logging"
print(len(vector))
"""


def cosine(a: list[float], b: list[float]) -> float:
    return nearness(a, [b])[0]


def test_vectors_need_no_network_and_no_cache(tmp_path: Path) -> None:
    outside = {"HOME": str(tmp_path), "PATH": "", "PYTHONPATH": str(ROOT)}
    run = subprocess.run([sys.executable, "-c", ALONE], cwd=tmp_path, env=outside, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == str(DIMENSIONS)
    assert not list(tmp_path.iterdir())


def test_paraphrases_are_nearer_than_other_rules() -> None:
    rule, same, other = embed(
        [
            "Use LTM EBITDA, never the last fiscal year, when comparing deals.",
            "When deals are compared, use EBITDA of the last twelve months (LTM).",
            "Close a ticket only after the customer confirmed the fix.",
        ]
    )
    assert cosine(rule, same) > 0.5 > 0.2 > cosine(rule, other)
    assert cosine(rule, rule) == pytest.approx(1)


def test_texts_without_words_have_an_empty_vector() -> None:
    assert embed([]) == []
    nothing, blank, something = embed(["", " \n", "deal"])
    assert not any([*nothing, *blank])
    assert any(something)
    assert cosine(nothing, something) == 0


def test_vectors_of_two_models_are_not_compared() -> None:
    with pytest.raises(ValueError, match="mismatch"):
        cosine([1.0, 0.0], [1.0])


def test_threads_share_one_model(monkeypatch: pytest.MonkeyPatch) -> None:
    loads = []
    really = embeddings._read_model

    def read() -> object:
        loads.append(1)
        return really()

    monkeypatch.setattr(embeddings, "_model", None)
    monkeypatch.setattr(embeddings, "_read_model", read)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: embed(["deal"])[0], range(8)))
    assert len(loads) == 1
    assert all(answer == answers[0] for answer in answers)


def test_near_pairs_are_those_that_every_comparison_would_find() -> None:
    vectors = embed(
        [f"Reply to tickets of priority {n} within {n} hours." for n in range(300)] + ["Use EUR.", "Log it."]
    )
    found = {(a, b): near for a, b, near in near_pairs(vectors, 0.9, most_each=301)}
    wanted = {(a, b) for a in range(0, 302, 43) for b in range(a + 1, 302) if cosine(vectors[a], vectors[b]) >= 0.9005}
    assert wanted <= set(found)
    assert all(a < b and near >= 0.9 for (a, b), near in found.items())
    assert (
        max(sum(pair[0] == n for pair in found) for n in range(302))
        > 3
        >= len([pair for pair in near_pairs(vectors[:4], 0.0, most_each=1) if pair[0] == 0])
    )
    assert nearness(vectors[0], vectors[:2]) == pytest.approx([1, cosine(vectors[0], vectors[1])], abs=1e-5)
    assert near_pairs(vectors[:1], 0) == []
    assert nearness(vectors[0], []) == []
