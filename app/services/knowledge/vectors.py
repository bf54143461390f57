"""Sentence vectors of knowledge, stored by model and by the hash of the text.

A row without a stored vector is embedded when it is read. Reading writes nothing: the vector stays in this process.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import literal, select
from sqlalchemy.dialects.postgresql import insert

from app.actor import Actor
from app.db import db
from app.models import SharedContext, SharedContextEmbedding
from app.text.embeddings import MODEL_NAME, embed

# A vector is a kilobyte.
MAX_CACHED = 8192
_cache: dict[str, Any] = {}


def get_vectors(texts: Mapping[UUID, tuple[str, str]]) -> dict[UUID, Any]:
    """The vector of each row, given its `(content_hash, content)`. At most one query, none for cached vectors."""
    import numpy

    unknown = {row_id for row_id, (digest, _) in texts.items() if digest not in _cache}
    if len(_cache) + len(unknown) > MAX_CACHED:
        _cache.clear()
        unknown = set(texts)
    if unknown:
        stored = _read_stored(unknown)
        missing = {
            digest: text for row_id, (digest, text) in texts.items() if row_id in unknown and digest not in stored
        }
        stored |= dict(zip(missing, embed(list(missing.values())), strict=True))
        _cache.update({digest: numpy.asarray(vector, dtype=numpy.float32) for digest, vector in stored.items()})
    return {row_id: _cache[digest] for row_id, (digest, _) in texts.items()}


def save_vector(row_id: UUID, vector: Sequence[float], *, actor: Actor) -> None:
    """Store the vector of a row's current text. The row must have been flushed: the database computes its hash."""
    row = select(
        SharedContext.tenant_id, SharedContext.id, literal(MODEL_NAME), SharedContext.content_hash,
        literal(list(vector), SharedContextEmbedding.vector.type),
    ).where(SharedContext.tenant_id == actor.tenant_id, SharedContext.id == row_id)  # fmt: skip
    columns = ["tenant_id", "shared_context_id", "model", "content_hash", "vector"]
    new = insert(SharedContextEmbedding).from_select(columns, row)
    changed = {"content_hash": new.excluded.content_hash, "vector": new.excluded.vector}
    db.session.execute(new.on_conflict_do_update(index_elements=columns[:3], set_=changed))


def _read_stored(row_ids: Iterable[UUID]) -> dict[str, Any]:
    embedding = SharedContextEmbedding
    rows = db.session.execute(
        select(embedding.content_hash, embedding.vector).where(
            embedding.model == MODEL_NAME, embedding.shared_context_id.in_(list(row_ids))
        )
    )
    return {row.content_hash: row.vector for row in rows}
