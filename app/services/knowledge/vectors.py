"""Sentence vectors of knowledge, stored by model and by the hash of the text.

A row without a stored vector is embedded when it is read. Reading writes nothing: the vector stays in this process.
"""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import literal, select
from sqlalchemy.dialects.postgresql import insert

from app.actor import Actor
from app.db import db
from app.learning.hygiene.checks import Row
from app.models import SharedContext, SharedContextEmbedding
from app.text.embeddings import MODEL_NAME, embed

# A vector is a kilobyte.
MAX_CACHED = 8192
_cache: dict[str, Any] = {}


def get_vectors(rows: Sequence[Row]) -> dict[UUID, Any]:
    """The vector of each row's text. At most one query, none for cached vectors."""
    import numpy

    unknown = [row for row in rows if row.digest not in _cache]
    if len(_cache) + len(unknown) > MAX_CACHED:
        _cache.clear()
        unknown = list(rows)
    if unknown:
        stored = SharedContextEmbedding
        of_rows = stored.model == MODEL_NAME, stored.shared_context_id.in_([row.id for row in unknown])
        vectors = dict(db.session.execute(select(stored.content_hash, stored.vector).where(*of_rows)).all())
        missing = {row.digest: row.content for row in unknown if row.digest not in vectors}
        vectors |= dict(zip(missing, embed(list(missing.values())), strict=True))
        _cache.update({digest: numpy.asarray(vector, dtype=numpy.float32) for digest, vector in vectors.items()})
    return {row.id: _cache[row.digest] for row in rows}


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
