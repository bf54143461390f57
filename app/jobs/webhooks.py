"""Send what is queued for webhooks: signed, with a lease, through the guarded way out."""

import asyncio
import hmac
import json
import logging
import time
from hashlib import sha256

from flask import current_app
from sqlalchemy.exc import SQLAlchemyError

from app.agents.outside.client import OutboundError, open_client
from app.db import acting_as, transaction
from app.errors import Invalid
from app.services.webhooks import delivery
from app.services.webhooks.delivery import Claimed, Outcome
from app.services.webhooks.store import signing_secret
from app.services.workspaces import identity

log = logging.getLogger("upshot")
BATCH = 20
SECONDS = 10.0
MAX_BYTES = 65_536


def deliver_due() -> int:
    """Send what is due in any workspace, and return how many deliveries were made. Processes may do this at once."""
    settings, secret_key = current_app.config["SETTINGS"], current_app.config["SECRET_KEY"]
    with transaction():
        workspaces = delivery.waiting_workspaces()
    done = 0
    for tenant_id in workspaces:
        product = identity.product_in(tenant_id)
        try:
            with acting_as(product), transaction():
                delivery.forget_old(actor=product)
                claimed = delivery.claim_due(settings.url, actor=product, most=BATCH)
            outcomes = asyncio.run(_send_all(claimed, secret_key, settings.outbound_allow))
            with acting_as(product), transaction():
                for one, outcome in zip(claimed, outcomes, strict=True):
                    done += delivery.finish(one, outcome, actor=product) and outcome.delivered
        except SQLAlchemyError as trouble:
            log.warning("webhooks of %s are tried again later: %s", tenant_id, type(trouble).__name__)
    return done


async def _send_all(claimed: list[Claimed], secret_key: str, allow: str) -> list[Outcome]:
    return list(await asyncio.gather(*(_send(one, secret_key, allow) for one in claimed)))


async def _send(claimed: Claimed, secret_key: str, allow: str) -> Outcome:
    """Only the status of the answer is read. A sentence about a failure names the host, never the whole address."""
    body = json.dumps(claimed.body).encode()
    headers = {
        "Content-Type": "application/json",
        "X-Upshot-Event": claimed.event,
        "X-Upshot-Delivery": str(claimed.id),
        "X-Upshot-Signature": signature(signing_secret(secret_key, claimed.webhook_id), body, int(time.time())),
    }
    try:
        async with (
            asyncio.timeout(SECONDS),
            open_client(allow, headers, most=MAX_BYTES, seconds=SECONDS) as client,
            client.stream("POST", claimed.url, content=body) as answer,
        ):
            status = answer.status_code
    except (OutboundError, Invalid) as trouble:
        return Outcome(error=str(trouble))
    except TimeoutError:
        return Outcome(error="It did not answer in time.")
    return Outcome(status, None if 200 <= status < 300 else f"It answered {status}.")


def signature(secret: str, body: bytes, at: int) -> str:
    """The time and an HMAC of time and body: a receiver refuses what is old or was changed."""
    made = hmac.new(secret.encode(), f"{at}.".encode() + body, sha256).hexdigest()
    return f"t={at},v1={made}"
