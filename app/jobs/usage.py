"""Write in batches which knowledge was in prompts, how it was received and what it may have done; refresh its ranks."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from uuid import UUID

from sqlalchemy.exc import SQLAlchemyError

from app.actor import Actor
from app.db import acting_as, transaction
from app.services.knowledge import attribution
from app.services.knowledge import usage as knowledge_usage
from app.services.workspaces import identity

log = logging.getLogger("upshot")
# Ranks move by a hundredth in a day, so twice a day is often enough.
RANK_SECONDS = 12 * 3600.0
# After so many times as long as it took, a workspace is measured again.
REST_FACTOR = 100


def count_receptions(meter: ExposureMeter | None = None) -> int:
    """Count how people received sessions in all workspaces. Processes may do this in parallel: each counts others. The
    meter learns where something changed."""
    with transaction():
        workspaces = knowledge_usage.waiting_workspaces()
    done = 0
    for tenant_id in workspaces:
        product = identity.product_in(tenant_id)
        counted = _in_batches(product, knowledge_usage.count_receptions, knowledge_usage.RECEPTION_BATCH)
        if counted and meter is not None:
            meter.due.add(tenant_id)
        done += counted
    return done


def _in_batches(product: Actor, work: Callable[..., int], batch: int) -> int:
    """Do work in a workspace until less than a batch of it was left, each batch in its own transaction."""
    done, last = 0, batch
    try:
        while last == batch:
            with acting_as(product), transaction():
                last = work(actor=product)
            done += last
    except SQLAlchemyError as trouble:
        log.warning("%s is tried again later: %s", work.__name__, trouble)
    return done


class ExposureMeter:
    """Measures what was observed of knowledge in the workspaces where something changed. It takes a hundredth of a
    process's time at most, so a large workspace waits longer until it is measured again."""

    def __init__(self) -> None:
        self.due: set[UUID] = set()
        self.rests_until: dict[UUID, float] = {}

    def measure(self) -> None:
        for tenant_id in list(self.due):
            if self.rests_until.get(tenant_id, 0.0) > time.monotonic():
                continue
            product, began = identity.product_in(tenant_id), time.monotonic()
            self.due.discard(tenant_id)
            try:
                with acting_as(product), transaction():
                    attribution.measure_exposures(actor=product)
            except SQLAlchemyError as trouble:
                self.due.add(tenant_id)
                log.warning("what knowledge did is measured again later: %s", trouble)
            self.rests_until[tenant_id] = time.monotonic() + (time.monotonic() - began) * REST_FACTOR


class UsageWriter:
    """Writes noted usage, one transaction per workspace. A process that dies loses a few seconds of it."""

    def __init__(self) -> None:
        self.ranked_at: dict[UUID, float] = {}
        self.meter = ExposureMeter()

    def write(self) -> None:
        """Write what was noted since the last call. What cannot be written is kept for the next one."""
        for tenant_id, noted in knowledge_usage.take_pending().items():
            product = identity.product_in(tenant_id)
            try:
                with acting_as(product), transaction():
                    knowledge_usage.write_usage(noted, actor=product)
            except SQLAlchemyError as trouble:
                knowledge_usage.restore_pending(tenant_id, noted)
                log.warning("the use of knowledge was not written: %s", trouble)
                continue
            self.meter.due.add(tenant_id)
            now = time.monotonic()
            if now - self.ranked_at.get(tenant_id, -RANK_SECONDS) >= RANK_SECONDS:
                self.ranked_at[tenant_id] = now
                _in_batches(product, knowledge_usage.refresh_ranks, knowledge_usage.BATCH)
