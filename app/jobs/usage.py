"""Write in batches which knowledge was in prompts and how it was received, and refresh its ranks."""

import logging
import time
from uuid import UUID

from sqlalchemy.exc import SQLAlchemyError

from app.actor import Actor
from app.db import acting_as, transaction
from app.services.knowledge import usage as knowledge_usage
from app.services.workspaces import identity

log = logging.getLogger("upshot")
# Ranks move by a hundredth in a day, so twice a day is often enough.
RANK_SECONDS = 12 * 3600.0


def count_receptions() -> int:
    """Count how people received sessions in all workspaces. Processes may do this in parallel: each counts others."""
    with transaction():
        workspaces = knowledge_usage.waiting_workspaces()
    return sum(_count_in_workspace(identity.product_in(tenant_id)) for tenant_id in workspaces)


def _count_in_workspace(product: Actor) -> int:
    counted, last = 0, knowledge_usage.RECEPTION_BATCH
    try:
        while last == knowledge_usage.RECEPTION_BATCH:
            with acting_as(product), transaction():
                last = knowledge_usage.count_receptions(actor=product)
            counted += last
    except SQLAlchemyError as trouble:
        log.warning("how knowledge was received was not counted: %s", trouble)
    return counted


class UsageWriter:
    """Writes noted usage, one transaction per workspace. A process that dies loses a few seconds of it."""

    def __init__(self) -> None:
        self.ranked_at: dict[UUID, float] = {}

    def write(self) -> None:
        """Write what was noted since the last call. What cannot be written is kept for the next one."""
        for tenant_id, noted in knowledge_usage.take_pending().items():
            product = identity.product_in(tenant_id)
            try:
                with acting_as(product), transaction():
                    knowledge_usage.write_usage(noted, actor=product)
                self._refresh(product)
            except SQLAlchemyError as trouble:
                knowledge_usage.restore_pending(tenant_id, noted)
                log.warning("the use of knowledge was not written: %s", trouble)

    def _refresh(self, product: Actor) -> None:
        """Refresh the ranks of a workspace's knowledge, one batch per transaction."""
        now = time.monotonic()
        if now - self.ranked_at.get(product.tenant_id, -RANK_SECONDS) < RANK_SECONDS:
            return
        self.ranked_at[product.tenant_id] = now
        moved = knowledge_usage.BATCH
        try:
            while moved == knowledge_usage.BATCH:
                with acting_as(product), transaction():
                    moved = knowledge_usage.refresh_ranks(actor=product)
        except SQLAlchemyError as trouble:
            log.warning("the ranks of knowledge were not refreshed: %s", trouble)
