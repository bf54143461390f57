"""Looking at the clock: what is due is begun once, whoever looks first."""

from __future__ import annotations

import logging

from sqlalchemy.exc import SQLAlchemyError

from app.db import acting_as, transaction
from app.services.tasks import due as task_due
from app.services.workspaces import identity

log = logging.getLogger("upshot")


def begin_due(owner: str) -> int:
    """Begin what is due in any workspace; how much that was. A task that breaks does not hold up the others."""
    with transaction():
        found = task_due.due_tasks()
    begun = 0
    for task_id, tenant_id in found:
        product = identity.product_in(tenant_id)
        try:
            with acting_as(product), transaction():
                begun += task_due.run_due(task_id, owner=owner, actor=product) is not None
        except SQLAlchemyError as trouble:
            log.warning("task %s was not begun: %s", task_id, trouble)
    return begun
