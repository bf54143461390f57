"""Eval runs over the API: start, follow, cancel, delete, and the post-deploy hook."""

from dataclasses import replace
from datetime import datetime
from typing import Any, Literal, get_type_hints
from uuid import UUID

from flask import Response, current_app, g
from pydantic import Field, create_model

from app.api.admin import admin_route
from app.api.admin.evals import SetQuery
from app.api.admin.proofs import UsageAnswer
from app.api.kit.fields import Answer, Body, Id, Moment, Query, SetName
from app.db import paging
from app.errors import NotFound
from app.services.agents import versions
from app.services.evals import golden as eval_golden
from app.services.evals import reports, run_lists
from app.services.evals import results as eval_results
from app.services.evals import runs as eval_runs
from app.services.evals import usage as eval_usage
from app.services.evals.baselines import changes_of
from app.services.evals.judging import again
from app.services.evals.runs import NewRun

Context = Literal["frozen", "live"]
Tools = Literal["recorded", "live"]
MOST_SETS = 20


class Configuration(Body):
    """What to replay with. Defaults to the current version of each golden's own agent."""

    agentId: Id | None = Field(None, strict=False)  # noqa: N815 - the API speaks camel case here.
    agentVersionId: Id | None = Field(None, strict=False)  # noqa: N815 - the same.
    context: Context = Field(
        "frozen", description=("Frozen is the knowledge the golden had, live is what is active now.")
    )
    tools: Tools = Field(
        "recorded", description=("`live` calls external tools. Upshot's own tools never write in a replay.")
    )
    toolPolicies: dict[str, Literal["recorded", "live", "refuse"]] = Field(  # noqa: N815 - the same.
        {}, max_length=200, description="The same per tool, by name."
    )
    plusRows: list[Id] = Field([], max_length=50, strict=False)  # noqa: N815 - the same.
    minusRows: list[Id] = Field([], max_length=50, strict=False)  # noqa: N815 - the same.
    trials: int = Field(1, ge=1, le=eval_runs.MAX_TRIALS, description="Replays per golden.")
    ref: str | None = Field(None, max_length=200, description="Your label, such as a commit.")

    def new_run(self, **what: Any) -> NewRun:
        everything = {"*": "live"} if self.tools == "live" else {}
        return NewRun(
            agent_id=self.agentId,
            agent_version_id=self.agentVersionId,
            context_mode=self.context,
            tools=everything | self.toolPolicies,
            plus_rows=self.plusRows,
            minus_rows=self.minusRows,
            trials=self.trials,
            ref=self.ref,
            **what,
        )


class GoldenRun(Configuration):
    """A golden or a set to replay."""

    goldenSessionId: Id | None = Field(None, strict=False)  # noqa: N815 - the API speaks camel case here.
    setName: SetName | None = None  # noqa: N815 - the same.


class SetRun(Configuration):
    """A whole set."""

    setName: SetName  # noqa: N815 - the API speaks camel case here.


class Started(Answer):
    id: UUID
    status: str


class Outcome(Answer):
    """A run's progress."""

    total: int
    ended: int
    verdicts: dict[str, int]
    seconds_left: int | None


# The columns of a run are listed once, where they are read.
_API_TYPES = {datetime: Moment, datetime | None: Moment | None}
_COLUMNS: Any = {name: (_API_TYPES.get(kind, kind), ...) for name, kind in get_type_hints(run_lists.RunColumns).items()}


class BaselineAnswer(Answer):
    """The baseline run, and how many goldens changed since. Goldens that couldn't be judged aren't counted."""

    run_id: UUID
    better: int
    worse: int
    same: int
    new: int


class RunAnswer(create_model("RunColumns", __base__=Answer, **_COLUMNS)):  # type: ignore[misc]
    """A run. `results.bySession` has the result per golden ID. Its `before` is the baseline's `verdict`,
    `overall_accuracy`, `replay_session_id` and `run_id`, or null."""

    agent: str | None = Field(description="The agent's slug, if the run tested only one.")
    agent_version: int | None
    trial: bool = Field(description="Trial runs don't change the set's score.")
    results: dict[str, Any]
    baseline: BaselineAnswer | None
    progress: Outcome | None = None
    usage: UsageAnswer | None = None


class RunQuery(Query):
    baseline: Id | None = Field(
        None, description="A completed run to compare with. Defaults to the set's last score when the run started."
    )


class ExportQuery(RunQuery):
    format: Literal["csv", "json", "junit"]


class RunPage(Answer):
    items: list[RunAnswer]
    next_cursor: str | None


class Deployed(Body):
    """What was deployed. Without `sets`, replays every set with goldens of the agent."""

    sets: list[SetName] = Field([], max_length=MOST_SETS)
    agent: str = Field(min_length=1, max_length=120, description="Slug of the agent.")
    version: int | None = Field(None, ge=1, le=2_000_000_000, description="Defaults to the current version.")
    ref: str | None = Field(None, max_length=200)


class Skipped(Answer):
    """A skipped set and the reason."""

    set: str
    reason: str


class DeployedRuns(Answer):
    """The runs, the sets without goldens of this agent, and how many goldens of other agents were left out."""

    ids: list[UUID]
    skipped: list[Skipped]
    left_out: int


@admin_route(
    "POST",
    "/api/admin/evals/runs",
    status=202,
    idempotent=True,
    also={404: "No such golden, set, agent or version.", 409: "The agent runs outside Upshot or is archived."},
)
def start(body: GoldenRun) -> Started:
    """Replay a golden or a set."""
    ids = [body.goldenSessionId] if body.goldenSessionId else []
    new = body.new_run(set_name=body.setName, golden_ids=ids)
    return Started.model_validate(eval_runs.start_run(new, actor=g.actor))


@admin_route(
    "POST",
    "/api/admin/evals/runs/set",
    status=202,
    idempotent=True,
    also={404: "No such set, agent or version.", 409: "The agent runs outside Upshot or is archived."},
)
def start_set(body: SetRun) -> Started:
    """Replay a set."""
    return Started.model_validate(eval_runs.start_run(body.new_run(set_name=body.setName), actor=g.actor))


@admin_route("GET", "/api/admin/evals/runs")
def list_runs(query: SetQuery) -> RunPage:
    """List runs. Newest first, without results."""
    found = run_lists.list_runs(paging.Page(query.limit, query.cursor), actor=g.actor, set_name=query.set)
    changes = changes_of([row.id for row in found.items], actor=g.actor)
    return RunPage.model_validate(found.map(lambda row: {**vars(row), "results": {}, "baseline": changes.get(row.id)}))


@admin_route("GET", "/api/admin/evals/runs/<uuid:run_id>")
def get_run(run_id: UUID, query: RunQuery) -> RunAnswer:
    """Get a run. While it runs, `results` has the results so far and `progress` the progress."""
    return _run_answer(run_id, query.baseline)


@admin_route(
    "GET",
    "/api/admin/evals/runs/<uuid:run_id>/export",
    media_type="text/csv, application/json, application/xml",
    also={404: "This workspace has no such run."},
)
def export_run(run_id: UUID, query: ExportQuery) -> Response:
    """Export a run. CSV has a row per golden, JSON has everything, JUnit has a test case per golden."""
    export = reports.export_run(run_id, query.format, actor=g.actor, baseline_id=query.baseline)
    return Response(export.text, content_type=export.media_type, headers=export.headers)


@admin_route("POST", "/api/admin/evals/runs/<uuid:run_id>/cancel", also={409: "The run already ended."})
def cancel(run_id: UUID, body: Body) -> RunAnswer:
    """Cancel a run. Waiting replays stop at once, running ones at their next step. Safe to repeat."""
    eval_results.cancel_run(run_id, actor=g.actor)
    return _run_answer(run_id)


@admin_route(
    "POST",
    "/api/admin/evals/runs/<uuid:run_id>/retry",
    also={409: "The run is still going, was cancelled, or has no errors."},
)
def retry(run_id: UUID, body: Body) -> RunAnswer:
    """Retry errored replays."""
    eval_results.retry_errored(run_id, actor=g.actor)
    return _run_answer(run_id)


@admin_route(
    "POST",
    "/api/admin/evals/runs/<uuid:run_id>/judge",
    also={409: "The run is still going or was cancelled, nothing needs a judge, or no judge is configured."},
)
def judge(run_id: UUID, body: Body) -> RunAnswer:
    """Judge a run again. Only replays without a usable judgement are judged. Nothing is replayed."""
    again.judge_again(run_id, current_app.config["SETTINGS"].model, actor=g.actor)
    return _run_answer(run_id)


@admin_route(
    "DELETE",
    "/api/admin/evals/runs/<uuid:run_id>",
    status=204,
    also={409: "The run is still going, or one of its replays was promoted to a golden."},
)
def delete(run_id: UUID) -> None:
    """Delete a run. Permanently deletes its replays and their events. Feedback from its failures stays."""
    eval_results.delete_run(run_id, actor=g.actor)


def _run_answer(run_id: UUID, baseline_id: UUID | None = None) -> RunAnswer:
    report = reports.load_report(run_id, actor=g.actor, baseline_id=baseline_id)
    answer: RunAnswer = RunAnswer.model_validate(report.as_json() | {"progress": report.progress})
    answer.usage = UsageAnswer.model_validate(eval_usage.usage_of_run(run_id, actor=g.actor))
    return answer


@admin_route(
    "POST",
    "/api/hooks/post-deploy",
    status=202,
    idempotent=True,
    also={404: "No such agent or set, or the agent has no goldens.", 409: "The agent can't run in Upshot."},
)
def post_deploy(body: Deployed) -> DeployedRuns:
    """Replay goldens after a deployment. Replays this agent's goldens in each set. Sets without any are skipped."""
    agent = versions.resolve_agent(body.agent, actor=g.actor)
    version = versions.version_id(agent, body.version, field="version")
    own = eval_golden.sets_of_agent(agent.id, actor=g.actor)
    if not own and not body.sets:
        raise NotFound(f"{agent.slug} has recorded no golden. Promote one of its sessions first.")
    known = {one.name for one in eval_golden.list_sets(actor=g.actor)}
    empty = sorted(known & set(body.sets) - set(own))
    new = NewRun(agent_id=agent.id, agent_version_id=version, own_only=True, ref=body.ref, triggered_by="post-deploy")
    names = [name for name in dict.fromkeys(body.sets or own) if name not in empty]
    runs = [eval_runs.start_run(replace(new, set_name=name), actor=g.actor) for name in names]
    return DeployedRuns(
        ids=[run.id for run in runs],
        skipped=[Skipped(set=name, reason=f"{agent.slug} recorded no golden of {name}.") for name in empty],
        left_out=sum((run.options.get("left_out") or {}).get("other_agents", 0) for run in runs),
    )
