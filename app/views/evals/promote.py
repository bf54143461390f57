"""Promote one session with its expectations, or several at once."""

from dataclasses import replace
from typing import Any
from uuid import UUID

from flask import g, request, url_for

from app.db import transaction
from app.errors import Invalid, Problem, Refused, Unprocessable
from app.security.access import access
from app.services.evals import candidates, promotion
from app.services.evals import golden as eval_golden
from app.services.evals.promotion import Incomplete, Promotion
from app.views.evals import bp
from app.views.evals.pages import load_promote_form
from app.views.evals.promote_form import PromoteForm
from app.views.forms import selected_ids
from app.views.htmx import Toast, page, swap, toast_only, wants_fragment
from app.views.layout.shell import own_path


@bp.get("/promote/<uuid:session_id>")
@access("admin")
def ask_promotion(session_id: UUID) -> Any:
    """The form, on the session's page or in its panel; a page of its own without a script."""
    if wants_fragment() and request.args.get("put") == "away":
        return page("evals/_promote_place.html", "evals/_promote_place.html", session_id=session_id)
    return _form(session_id)


def _form(session_id: UUID, form: PromoteForm | None = None, status: int = 200) -> Any:
    resolves = len(candidates.signals_of(session_id, actor=g.actor))
    shown = {**load_promote_form(session_id, form), "resolves": resolves}
    return page("evals/promote.html", "evals/_promote_place.html", status=status, session_id=session_id, **shown)


@bp.post("/promote/<uuid:session_id>")
@access("admin")
def promote_session(session_id: UUID) -> Any:
    """Make one session golden. What is pending about its request is applied with it, as for a candidate."""
    form = PromoteForm.from_request()
    try:
        with transaction():
            given = replace(form.promotion(), feedback_ids=None)
            done = promotion.promote_session(session_id, given, actor=g.actor)
            set_name = done.golden["set"]
    except (Invalid, Unprocessable, Incomplete) as refusal:
        return _form(session_id, form.with_errors(refusal), 409 if isinstance(refusal, Incomplete) else 422)
    except Refused as refusal:
        if wants_fragment():
            return toast_only(Toast(refusal.detail, "error"), status=refusal.status)
        raise
    back = url_for("sessions.detail", session_id=session_id)
    toast = Toast(f"Golden in {set_name}.")
    return swap("evals/_promoted.html", fallback=back, toasts=[toast], session_id=session_id, set_name=set_name)


@bp.post("/promote")
@access("admin")
def ask_promotions() -> Any:
    """Which of the ticked sessions can be golden as they are, and into which set. Changes nothing."""
    return _many_form()


def _many_form(status: int = 200, errors: dict[str, str] | None = None) -> Any:
    found = promotion.list_choices(_selected_ids(), actor=g.actor)
    return page(
        "evals/promote_many.html",
        "evals/_promote_many.html",
        status=status,
        fit=[one for one in found if one.refusal is None],
        unfit=[one for one in found if one.refusal is not None],
        back=_list_address(),
        set_names=[one.name for one in eval_golden.list_sets(actor=g.actor)],
        usual=eval_golden.usual_set({one.agent_id for one in found}, actor=g.actor),
        errors=errors or {},
        in_place=wants_fragment(),
    )


@bp.post("/promote/confirmed")
@access("admin")
def promote_sessions() -> Any:
    """Make them golden, all or none."""
    given = Promotion(set_name=request.form.get("set", "").strip(), note=request.form.get("note"))
    ids = _selected_ids()
    try:
        with transaction():
            promotion.promote_sessions(ids, given, actor=g.actor)
    except Invalid as refusal:
        return _many_form(422, refusal.fields or {"set": refusal.detail})
    except Problem as refusal:
        if wants_fragment():
            return toast_only(Toast(f"Nothing was promoted. {refusal.detail}", "error"), status=refusal.status)
        raise
    set_name = eval_golden.set_or_default(given.set_name)
    toast = Toast(f"{len(ids):,} golden{'' if len(ids) == 1 else 's'} in {set_name}.")
    return swap("evals/_promoted_many.html", fallback=_list_address(), toasts=[toast], ids=ids)


def _list_address() -> str:
    back = own_path()
    return back if back.startswith(url_for("sessions.index")) else url_for("sessions.index")


def _selected_ids() -> list[UUID]:
    return selected_ids(f"Select 1 to {eval_golden.MAX_SESSIONS} sessions first.", eval_golden.MAX_SESSIONS)
