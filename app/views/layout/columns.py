"""The columns of lists: which of them a table hides, and the menu in which people choose them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flask import g, request

from app.db import transaction
from app.security.access import access
from app.services.lists import columns
from app.services.lists.columns import COLUMNS, ColumnChoice
from app.views.htmx import leave
from app.views.layout import bp
from app.views.layout.shell import own_path


@dataclass(frozen=True)
class TableColumns:
    """The columns of a table. Rows always have all their cells; the class of the table hides those of a column, so that
    a row which is swapped alone fits."""

    name: str
    choice: ColumnChoice
    same: frozenset[str]

    @property
    def hidden(self) -> frozenset[str]:
        return self.choice.hidden if self.choice.keeps_same else self.choice.hidden | self.same

    @property
    def css(self) -> str:
        return "".join(f" no-{name}" for name in sorted(self.hidden))

    @property
    def menu(self) -> list[tuple[str, str, bool, bool]]:
        """Each column with what it is called, whether it is wanted, and whether it hides itself here."""
        hidden = self.choice.hidden
        return [
            (name, label, name not in hidden, name in self.same and name not in hidden)
            for name, (label, _) in COLUMNS[self.name].items()
        ]


def choose_columns(name: str, rows: Sequence[Any]) -> TableColumns:
    """The columns of a list for the reader. No query where the views of its tab were loaded, else one."""
    choice = g.get("column_choices", {}).get(name)
    return TableColumns(name, choice or columns.get_choice(name, actor=g.actor), columns.find_same(name, rows))


@bp.post("/admin/agent-review/columns/<name>")
@access("admin")
def save_columns(name: str) -> Any:
    """Keep the columns that were ticked, or go back to those that everybody starts with."""
    with transaction():
        if request.form.get("reset"):
            columns.reset_choice(name, actor=g.actor)
        else:
            keeps_same = not request.form.get("hide_same")
            columns.save_choice(name, request.form.getlist("shown"), keeps_same=keeps_same, actor=g.actor)
    return leave(own_path())
