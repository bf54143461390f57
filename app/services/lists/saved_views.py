"""Lists as people like to see them: the query of an address under a name, their own or shared with all admins."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlencode
from uuid import UUID

from sqlalchemy import ColumnElement, Text, and_, case, func, null, select, update
from sqlalchemy.exc import IntegrityError

from app.actor import Actor
from app.db import db
from app.db.queries import ASKING, Query, value
from app.errors import Invalid, NotFound, Refused
from app.formats.ids import clean_name
from app.models.people import ListColumns, SavedView, Tenant, User
from app.services import audit
from app.services.lists.columns import ColumnChoice
from app.services.lists.filters import Filters
from app.services.workspaces import store as workspace_store

MAX_NAME_LENGTH = 60
MAX_QUERY_LENGTH = 2000
MAX_VIEWS = 50
# The place in a list is not part of a view.
PLACES = frozenset({"before", "after", "cursor", "limit", "panel", "view"})


@dataclass(frozen=True)
class ViewRow:
    """`owner` is the name of the person who shares it, None for the reader's own."""

    id: UUID
    tab: str
    name: str
    query: str
    shared: bool
    is_default: bool
    owner: str | None

    @property
    def mine(self) -> bool:
        return self.owner is None

    @property
    def args(self) -> dict[str, str]:
        return dict(parse_qsl(self.query))


@Query
def find_views() -> Any:
    """The views that one sees, of a tab or of all, each with the settings."""
    own, tab = SavedView.user_id == ASKING.id, value("tab", Text)
    return (
        select(
            Tenant.settings, ListColumns.hidden, ListColumns.keeps_same,
            SavedView.id, SavedView.tab, SavedView.name, SavedView.query, SavedView.shared,
            and_(SavedView.is_default, own), case((own, null()), else_=func.coalesce(User.name, "someone")),
        )
        .outerjoin(SavedView, (SavedView.tenant_id == Tenant.id) & (own | SavedView.shared)
                   & (SavedView.tab == func.coalesce(tab, SavedView.tab)))
        .outerjoin(User, User.id == SavedView.user_id)
        .outerjoin(ListColumns, (ListColumns.tenant_id == Tenant.id) & (ListColumns.user_id == ASKING.id)
                   & (ListColumns.list == tab))
        .where(Tenant.id == ASKING.tenant_id)
        .order_by(own.desc(), func.lower(SavedView.name), SavedView.id)
    )  # fmt: skip


def list_views(tab: str | None = None, *, actor: Actor) -> list[ViewRow]:
    """One's own views by name, then what others share; of one tab, or of all."""
    return load_tab(tab, actor=actor)[0]


def load_tab(tab: str | None, *, actor: Actor) -> tuple[list[ViewRow], ColumnChoice]:
    """The views of a tab, or of all, and the columns that one chose for its list. One query, which reads the settings
    along, since a list needs them as well."""
    found = find_views(actor, tab=tab)
    workspace_store.cache_settings(found[0][0], actor=actor)
    return [ViewRow(*row[3:]) for row in found if row[3] is not None], ColumnChoice.stored(*found[0][1:3])


def get_view(view_id: UUID, *, actor: Actor) -> ViewRow:
    """A view of one's own, or one that is shared."""
    found = next((view for view in list_views(actor=actor) if view.id == view_id), None)
    if found is None:
        raise NotFound("There is no such view.")
    return found


def save_view(
    tab: str,
    name: str,
    query: str,
    *,
    filters: Mapping[str, type[Filters]],
    actor: Actor,
    shared: bool = False,
    is_default: bool = False,
) -> SavedView:
    """Save a query under a name; the same name again replaces it. `filters` are those of each tab."""
    if tab not in filters:
        raise Invalid.of({"tab": f"Use one of {', '.join(filters)}."})
    name, query = clean_name(name, MAX_NAME_LENGTH), _check_query(query, filters[tab])
    mine = _own_views(tab, actor)
    view = db.session.scalar(select(SavedView).where(mine, SavedView.name == name))
    if view is None:
        if (db.session.scalar(select(func.count()).select_from(SavedView).where(mine)) or 0) >= MAX_VIEWS:
            raise Refused(f"This tab has {MAX_VIEWS} views. Delete one first.")
        view = SavedView(tenant_id=actor.tenant_id, user_id=actor.id, tab=tab, name=name, query=query)
        db.session.add(view)
    view.query = query
    return _store(view, "view.saved", shared, is_default, actor)


def change_view(view_id: UUID, *, actor: Actor, name: str, shared: bool, is_default: bool) -> SavedView:
    """Rename a view of one's own, share it or keep it to oneself, open the tab with it or not."""
    view = _get_own(view_id, actor)
    view.name = clean_name(name, MAX_NAME_LENGTH)
    return _store(view, "view.changed", shared, is_default, actor)


def delete_view(view_id: UUID, *, actor: Actor) -> SavedView:
    view = _get_own(view_id, actor)
    db.session.delete(view)
    audit.record(actor, "view.deleted", "saved_view", view.id, tab=view.tab, name=view.name)
    return view


def _check_query(query: str, kind: type[Filters]) -> str:
    """Return the filters of a query without the place in the list."""
    if len(query) > MAX_QUERY_LENGTH:
        raise Invalid.of({"query": "Too many filters to save. Remove some."})
    given = {name: value for name, value in parse_qsl(query) if name not in PLACES}
    try:
        return urlencode(kind.from_args(given).as_args())
    except Invalid as wrong:
        raise Invalid.of({"query": f"Can’t save this view. {wrong.detail}"}) from None


def _store(view: SavedView, action: str, shared: bool, is_default: bool, actor: Actor) -> SavedView:
    """Write a view. A tab opens with one view at most."""
    name = view.name
    if is_default and not view.is_default:
        with db.session.no_autoflush:
            others = update(SavedView).where(_own_views(view.tab, actor), SavedView.is_default)
            db.session.execute(others.values(is_default=False))
    view.shared, view.is_default = shared, is_default
    try:
        db.session.flush()
    except IntegrityError:
        raise Refused(f"You already have a view named {name}. Choose another name.") from None
    audit.record(actor, action, "saved_view", view.id, tab=view.tab, name=name, shared=shared)
    return view


def _own_views(tab: str, actor: Actor) -> ColumnElement[bool]:
    return and_(SavedView.tenant_id == actor.tenant_id, SavedView.user_id == actor.id, SavedView.tab == tab)


def _get_own(view_id: UUID, actor: Actor) -> SavedView:
    mine = SavedView.tenant_id == actor.tenant_id, SavedView.user_id == actor.id
    view = db.session.scalar(select(SavedView).where(*mine, SavedView.id == view_id))
    if view is None:
        raise NotFound("There is no such view of yours.")
    return view
