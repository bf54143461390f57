"""Who may be named: with the setting `author_private`, whose conversation or feedback it is stays with that person.

Feedback is given in one's own conversation, so that the name beside the one would tell whose the other is. The setting
is read in the statement that reads the name, which costs no query more.
"""

from typing import Any

from sqlalchemy import and_, case, func, not_, select
from sqlalchemy.sql.elements import ColumnElement

from app.actor import Actor
from app.models import Tenant, User

A_MEMBER = "a member"


def is_hidden(whose: Any, actor: Actor) -> ColumnElement[bool]:
    """Whether the reader does not learn who this is: someone else, in a workspace that hides who said what."""
    setting = func.coalesce(Tenant.settings["author_private"].as_boolean(), False)
    return and_(whose != actor.id, select(setting).where(Tenant.id == actor.tenant_id).scalar_subquery())


def name_of(whose: Any, actor: Actor, *where: ColumnElement[bool]) -> ColumnElement[Any]:
    """What the joined `User` is called for this reader; they are hidden only `where` that holds. The product itself is
    nobody to hide."""
    return case((and_(is_hidden(whose, actor), User.is_system.is_(False), *where), A_MEMBER), else_=User.name)


def id_of(whose: Any, actor: Actor) -> ColumnElement[Any]:
    """The person's id, or nothing where they are hidden."""
    return case((not_(is_hidden(whose, actor)), whose))
