"""Sentence vectors of knowledge: kept with the row, by model and by the hash of its text, and made when one is missing.

Reading writes nothing: what a reader had to make stays in this process until the row is saved.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert

from app.actor import Actor
from app.db import db
from app.models import SharedContext, SharedContextEmbedding
from app.text.embeddings import MODEL_NAME, embed

# A vector is a kilobyte.
MOST_REMEMBERED = 8192
_remembered: dict[str, Any] = {}


def vectors_of(texts: Mapping[UUID, tuple[str, str]]) -> dict[UUID, Any]:
    """The vector of each row, whose `(content_hash, content)` is given. At most one query, and none for rows whose
    vectors this process knows."""
    import numpy

    unknown = {row_id for row_id, (digest, _) in texts.items() if digest not in _remembered}
    if len(_remembered) + len(unknown) > MOST_REMEMBERED:
        _remembered.clear()
        unknown = set(texts)
    if unknown:
        kept = _stored(unknown)
        made = [(digest, text) for row_id, (digest, text) in texts.items() if row_id in unknown and digest not in kept]
        made = list(dict(made).items())
        kept |= dict(zip([digest for digest, _ in made], embed([text for _, text in made]), strict=True))
        _remembered.update({digest: numpy.asarray(vector, dtype=numpy.float32) for digest, vector in kept.items()})
    return {row_id: _remembered[digest] for row_id, (digest, _) in texts.items()}


def keep_vectors(row_ids: Sequence[UUID], *, actor: Actor) -> int:
    """Write the vectors of these rows, where the one that is kept is of another text or none is."""
    kept = SharedContextEmbedding
    rows = db.session.execute(
        select(SharedContext.id, SharedContext.content_hash, SharedContext.content)
        .outerjoin(kept, (kept.shared_context_id == SharedContext.id) & (kept.model == MODEL_NAME))
        .where(
            SharedContext.tenant_id == actor.tenant_id,
            SharedContext.id.in_(row_ids),
            kept.content_hash.is_distinct_from(SharedContext.content_hash),
        )
        .order_by(SharedContext.id)
    ).all()
    if not rows:
        return 0
    vectors = vectors_of({row.id: (row.content_hash, row.content) for row in rows})
    values = [
        {
            "tenant_id": actor.tenant_id,
            "shared_context_id": row.id,
            "model": MODEL_NAME,
            "content_hash": row.content_hash,
            "vector": vectors[row.id].tolist(),
        }
        for row in rows
    ]
    new = insert(kept).values(values)
    changed = {"content_hash": new.excluded.content_hash, "vector": new.excluded.vector}
    db.session.execute(
        new.on_conflict_do_update(index_elements=["tenant_id", "shared_context_id", "model"], set_=changed)
    )
    return len(rows)


def _stored(row_ids: Iterable[UUID]) -> dict[str, Any]:
    kept = SharedContextEmbedding
    rows = db.session.execute(
        select(kept.content_hash, kept.vector).where(
            kept.model == MODEL_NAME, kept.shared_context_id.in_(list(row_ids))
        )
    )
    return {row.content_hash: row.vector for row in rows}
