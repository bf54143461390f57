"""When each key and login was last used, and which knowledge prompts carried: noted in memory, written in batches."""

import threading

from flask import Flask, Response, current_app, g
from sqlalchemy.exc import SQLAlchemyError

from app.db import acting_as, transaction
from app.services.knowledge import usage as knowledge_usage
from app.services.workspaces import identity, keys


def note_use(response: Response) -> Response:
    """Remember in memory who made the request. Now and then a thread writes it down, so that no request waits."""
    actor = g.get("actor")
    if actor is not None and keys.note_use(actor, g.get("login_id")):
        app: Flask = current_app._get_current_object()  # type: ignore[attr-defined]
        threading.Thread(target=_write_uses, args=(app,), name="uses", daemon=True).start()
    return response


def _write_uses(app: Flask) -> None:
    with app.app_context():
        try:
            write_uses()
        except SQLAlchemyError as trouble:
            app.logger.warning("the last uses of keys were not written: %s", trouble)


def write_uses() -> None:
    with keys.writing:
        for tenant_id, batch in keys.take_batches().items():
            with acting_as(identity.product_in(tenant_id)), transaction():
                keys.write_batch(batch)
            keys.forget_batch(batch)
        for tenant_id, noted in knowledge_usage.take_pending().items():
            actor = identity.product_in(tenant_id)
            try:
                with acting_as(actor), transaction():
                    knowledge_usage.write_usage(noted, actor=actor)
            except SQLAlchemyError:
                knowledge_usage.restore_pending(tenant_id, noted)
                raise
