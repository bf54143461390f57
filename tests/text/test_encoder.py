"""The sentence encoder: the published vectors, batches that change nothing, memory that is given back."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest

from app.text import encoder
from app.text.encoder import DIMENSIONS, MAX_TOKENS, encode, load_encoder, release

ROOT = Path(__file__).resolve().parents[2]


def test_vectors_are_those_that_the_model_is_published_with() -> None:
    found = encode(["This is an example sentence", "Each sentence is converted"])
    assert found.shape == (2, DIMENSIONS)
    assert found[:, :3] == pytest.approx(
        np.array([[0.0677, 0.0635, 0.0487], [0.0864, 0.1028, 0.0054]], dtype=np.float32), abs=1e-4
    )
    assert np.linalg.norm(found, axis=1) == pytest.approx([1, 1])


def test_other_texts_of_a_batch_change_nothing() -> None:
    texts = ["60 euro more than I said", "Use gross prices.", "", "word " * 2 * MAX_TOKENS, *map(str, range(40))]
    together = encode(texts)
    assert np.abs(together - np.concatenate([encode([text]) for text in texts])).max() < 1e-5
    assert encode([]).shape == (0, DIMENSIONS)


def test_the_same_meaning_in_other_words_is_near() -> None:
    rule, same, other = encode(["Customer wants a refund", "The client asked for their money back", "Call him Tuesday"])
    assert rule @ same > 0.6 > 0.3 > rule @ other


def test_memory_is_given_back() -> None:
    process = psutil.Process()
    encode(["Once, so that the libraries are loaded."])
    weights = sum(one.nbytes for one in load_encoder().weights.values())
    loaded = process.memory_full_info().pss
    release()
    assert loaded - process.memory_full_info().pss > weights / 4


def test_nothing_is_loaded_before_it_is_needed_and_a_missing_package_is_said() -> None:
    code = """
import sys
import app.text.encoder as encoder
assert not {"numpy", "tokenizers"} & set(sys.modules)
encoder.PACKAGE = "no_such_package"
assert not encoder.is_installed()
try:
    encoder.encode(["text"])
except LookupError as missing:
    print(missing)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert "make setup" in done.stdout, done.stderr
    assert encoder.is_installed()
