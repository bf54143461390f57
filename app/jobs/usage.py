"""Which knowledge was in prompts, gathered in memory and written in batches: no prompt waits for its figures."""

from __future__ import annotations

import logging
import threading
import time
from datetime import datetime
from uuid import UUID

from sqlalchemy.exc import SQLAlchemyError

from app.actor import Actor
from app.db import acting_as, transaction
from app.services import accounts, knowledge_usage

log = logging.getLogger("upshot")
# Ranks move by a hundredth in a day, so twice a day is often enough.
RANKS_EVERY = 12 * 3600.0
Counts = dict[UUID, tuple[int, datetime]]


class Usage:
    """What has been noted and not been written yet. A process that dies loses a few seconds of it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._noted: dict[UUID, Counts] = {}
        self._ranked_at: dict[UUID, float] = {}

    def note(self, tenant_id: UUID, row_ids: list[UUID], when: datetime) -> None:
        """These rows were in a prompt."""
        self._add(tenant_id, dict.fromkeys(row_ids, (1, when)))

    def write(self) -> None:
        """Write what was noted, one transaction for each workspace. What cannot be written waits for the next time."""
        with self._lock:
            noted, self._noted = self._noted, {}
        for tenant_id, counts in noted.items():
            product = accounts.product_in(tenant_id)
            try:
                with acting_as(product), transaction():
                    knowledge_usage.note_injections(counts, actor=product)
            except SQLAlchemyError as trouble:
                self._add(tenant_id, counts)
                log.warning("the use of knowledge was not written: %s", trouble)
            else:
                self._refresh(product)

    def _refresh(self, product: Actor) -> None:
        """Where knowledge is in use its order is kept up to date, a batch in each transaction."""
        now = time.monotonic()
        if now - self._ranked_at.get(product.tenant_id, -RANKS_EVERY) < RANKS_EVERY:
            return
        self._ranked_at[product.tenant_id] = now
        moved = knowledge_usage.BATCH
        try:
            while moved == knowledge_usage.BATCH:
                with acting_as(product), transaction():
                    moved = knowledge_usage.refresh_ranks(actor=product)
        except SQLAlchemyError as trouble:
            log.warning("the ranks of knowledge were not refreshed: %s", trouble)

    def _add(self, tenant_id: UUID, more: Counts) -> None:
        with self._lock:
            known = self._noted.setdefault(tenant_id, {})
            for row_id, (number, when) in more.items():
                before, last = known.get(row_id, (0, when))
                known[row_id] = (before + number, max(last, when))
