"""How the pages of Agent Review say sums of money, and how long something waits."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from decimal import Decimal
from typing import Any

from app.views.times import DAY, HOUR, MINUTE, now


def money(value: Decimal | float) -> str:
    """`$0.0042`, `$1.20`, `$1,204.00`: small sums keep two digits that mean something."""
    amount = Decimal(value)
    if not amount:
        return "$0"
    if abs(amount) >= 1:
        return f"${amount:,.2f}"
    text = f"{amount:.6f}" if abs(amount) < Decimal("0.0001") else f"{amount:.4f}"
    return f"${text.rstrip('0').rstrip('.')}"


def span(since: datetime, until: datetime | None = None) -> str:
    """`3 days`: how long something waits, in one unit written out."""
    seconds = max(0.0, ((until or now()) - since).total_seconds())
    unit, length = next(
        ((unit, length) for unit, length in (("day", DAY), ("hour", HOUR), ("minute", MINUTE)) if seconds >= length),
        ("minute", MINUTE),
    )
    number = max(1, int(seconds // length))
    return f"{number:,} {unit}{'' if number == 1 else 's'}"


def scope_options(rows: Iterable[Any]) -> list[tuple[str, str]]:
    """Agents or entity types as options of a form."""
    return [(str(row.id), row.slug) for row in rows]


AMOUNT_FILTERS: dict[str, Callable[..., Any]] = {"money": money, "span": span}
