"""Run everything on a real PostgreSQL: one server for all test processes, one migrated database for each of them."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import hypothesis
import psycopg
import pytest
from bs4 import BeautifulSoup
from flask import Flask
from flask.testing import FlaskClient
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from sqlalchemy import event
from werkzeug.test import TestResponse

ROOT = Path(__file__).resolve().parent.parent
PASSWORD = "only-for-tests"
# A busy machine makes single examples slow; how long things take is measured in bench/.
hypothesis.settings.register_profile("upshot", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("upshot")
SLOW_FIRST = ("tests/demo/", "tests/contract/", "tests/sessions/")


def golden_mark(set_name: str = "smoke", said: str = "Hello") -> dict[str, Any]:
    """Build the metadata of a golden whose only user message is this."""
    from app.evals.snapshot import snapshot_hash

    snapshot = {"turns": [said]}
    return {"golden": {"set": set_name, "snapshot": snapshot, "sha256": snapshot_hash(snapshot)}}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="kill as often as the promises say, not just a few times")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start slow tests first, so that no test process is left with one of them at the end.

    Browser tests come last: Playwright leaves an event loop running in its thread, and code that starts a loop of its
    own would fail in the same process afterwards.
    Tests of a module that start servers or workers of their own run one after the other, or they would be too slow.
    """
    for item in items:
        if item.get_closest_marker("process"):
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
    items.sort(key=_rank)


def _rank(item: pytest.Item) -> int:
    if item.get_closest_marker("process"):
        return -1
    if item.nodeid.startswith("tests/browser/"):
        return len(SLOW_FIRST) + 1
    return next((rank for rank, start in enumerate(SLOW_FIRST) if item.nodeid.startswith(start)), len(SLOW_FIRST))


@pytest.fixture
def full(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--full"))


class Server:
    """A PostgreSQL server for tests; `conninfo` gives the address of a database for a role."""

    def __init__(self, conninfo: Callable[[str, str], str]) -> None:
        self.conninfo = conninfo

    def run(self, statement: sql.Composable | str, dbname: str = "postgres") -> None:
        with psycopg.connect(self.conninfo("superuser", dbname), autocommit=True) as connection:
            connection.execute(statement)  # type: ignore[arg-type]

    def copy(self, template: str, name: str) -> None:
        statement = sql.SQL("CREATE DATABASE {} TEMPLATE {} OWNER upshot_owner")
        self.run(statement.format(sql.Identifier(name), sql.Identifier(template)))

    @contextmanager
    def database(self, template: str, kind: str = "test") -> Iterator[str]:
        """Give the name of a database with roles and tables that lasts as long as the block.

        Its commits do not wait for the disk: what a crash loses is tested on servers of their own.
        """
        name = f"{kind}_{secrets.token_hex(6)}"
        with self.alone(7302):
            self.copy(template, name)
        self.prepare(name)
        self.run(sql.SQL("ALTER DATABASE {} SET synchronous_commit = off").format(sql.Identifier(name)))
        yield name
        self.drop(name)

    def drop(self, name: str) -> None:
        self.run(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))

    def exists(self, name: str) -> bool:
        with psycopg.connect(self.conninfo("superuser", "postgres")) as connection:
            return connection.execute("select 1 from pg_database where datname = %s", (name,)).fetchone() is not None

    @contextmanager
    def alone(self, key: int) -> Iterator[None]:
        with psycopg.connect(self.conninfo("superuser", "postgres"), autocommit=True) as connection:
            connection.execute("select pg_advisory_lock(%s)", (key,))
            yield

    def prepare(self, dbname: str) -> None:
        """Create a database if it is missing, with the roles and grants of `upshot db init`."""
        from app.db.roles import ensure_roles

        def password(role: str) -> str:
            return str(conninfo_to_dict(self.conninfo(role, dbname))["password"])

        with psycopg.connect(self.conninfo("superuser", "postgres"), autocommit=True) as connection:
            ensure_roles(connection, owner_password=password("owner"), app_password=password("app"), dbname=dbname)


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """Use the server named by UPSHOT_TEST_SERVER, or an embedded one that all tests of this clone share."""
    named = os.environ.get("UPSHOT_TEST_SERVER")
    if named:
        yield Server(lambda role, dbname: named_conninfo(named, role, dbname))
        return
    from app.db.embedded.shared import Embedded

    embedded = Embedded(shared_folder() / "postgres").start()
    yield Server(lambda role, dbname: make_conninfo(embedded.url(role, dbname)))
    embedded.release()


def shared_folder() -> Path:
    """Name the folder that all test processes of this clone share, and later runs too."""
    mark = hashlib.sha256(f"{ROOT}:{os.getuid()}".encode()).hexdigest()[:12]
    return Path(tempfile.gettempdir()) / f"upshot-tests-{mark}"


def named_conninfo(superuser: str, role: str, dbname: str) -> str:
    if role == "superuser":
        return make_conninfo(superuser, dbname=dbname)
    return make_conninfo(superuser, dbname=dbname, user=f"upshot_{role}", password=PASSWORD)


def schema_mark() -> str:
    """Hash the migrations, so that a stale template is never used."""
    files = sorted((ROOT / "migrations").rglob("*.py")) + sorted((ROOT / "migrations").rglob("*.sql"))
    files += [ROOT / "app/db/roles.py", ROOT / "app/db/migrate.py"]
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:12]


@pytest.fixture(scope="session")
def template(server: Server) -> str:
    """Give the name of a migrated, empty database, created once for each state of the migrations."""
    from app.db.migrate import upgrade

    name = f"tpl_{schema_mark()}"
    with server.alone(7301):
        if not server.exists(name):
            building = f"building_{secrets.token_hex(4)}"
            server.prepare(building)
            upgrade(server.conninfo("owner", building))
            server.run(sql.SQL("ALTER DATABASE {} RENAME TO {}").format(sql.Identifier(building), sql.Identifier(name)))
            server.prepare(name)
    return name


@pytest.fixture(scope="session")
def database(server: Server, template: str) -> Iterator[str]:
    """The database of this test process."""
    with server.database(template) as name:
        yield name


@pytest.fixture
def empty_database(server: Server) -> Iterator[str]:
    """Give the name of a database with roles but no tables, for tests of the migrations."""
    name = f"empty_{secrets.token_hex(6)}"
    server.prepare(name)
    yield name
    server.drop(name)


@pytest.fixture(scope="session")
def app_url(server: Server, database: str) -> str:
    return server.conninfo("app", database)


@pytest.fixture(scope="session")
def owner_url(server: Server, database: str) -> str:
    return server.conninfo("owner", database)


@pytest.fixture(scope="session")
def superuser_url(server: Server, database: str) -> str:
    return server.conninfo("superuser", database)


@pytest.fixture(scope="session")
def app(app_url: str, owner_url: str, tmp_path_factory: pytest.TempPathFactory) -> Flask:
    """Create the real app, connected to this test process's database as the app role."""
    from app import create_app
    from app.config import Settings
    from app.db.boot import Opened

    settings = Settings(data_dir_text=str(tmp_path_factory.mktemp("data")), threads=8)
    flask = create_app(settings, Opened(app_url, secrets.token_urlsafe(48), owner_url), demo=True)
    flask.config["PROPAGATE_EXCEPTIONS"] = False
    return flask


@pytest.fixture
def app_context(app: Flask) -> Iterator[None]:
    """Push an application context for tests of services."""
    with app.app_context():
        yield


class Workspace:
    """A workspace and an actor for each of its people."""

    def __init__(self, tenant_id: UUID, slug: str, people: dict[str, Any]) -> None:
        self.id = tenant_id
        self.slug = slug
        self.people = people

    def actor(self, role: str = "admin") -> Any:
        return self.people[role]


@pytest.fixture
def make_workspace(app: Flask) -> Callable[..., Workspace]:
    """Create workspaces with an owner, an admin, a member and a second member (`other`).

    The people are inserted together, because almost every test needs a workspace and few are about its people.
    """
    from app.actor import Actor
    from app.db import acting_as, db, transaction
    from app.models import Membership, User
    from app.services.workspaces import store as workspace_store

    def make(name: str = "Acme") -> Workspace:
        slug = f"t-{secrets.token_hex(6)}"
        with app.app_context():
            with transaction():
                _, system = workspace_store.create_workspace(slug=slug, name=name)
            tenant_id = system.tenant_id
            roles = {"owner": "owner", "admin": "admin", "member": "member", "other": "member"}
            actors = {
                label: Actor(uuid4(), tenant_id, role, f"{label.title()} {slug}") for label, role in roles.items()
            }
            with acting_as(system), transaction():
                db.session.add_all(
                    User(id=actor.id, email=f"{label}-{slug}@example.test", name=actor.name)
                    for label, actor in actors.items()
                )
                db.session.flush()
                db.session.add_all(
                    Membership(tenant_id=tenant_id, user_id=actor.id, role=actor.role) for actor in actors.values()
                )
            return Workspace(tenant_id, slug, {"system": system, **actors})

    return make


@pytest.fixture
def workspace(make_workspace: Callable[..., Workspace]) -> Workspace:
    return make_workspace()


@pytest.fixture
def sign_in(app: Flask) -> Callable[..., FlaskClient]:
    """Sign an actor in and give the test client; `client.csrf` is its CSRF token."""
    from app import tokens
    from app.db import acting_as, transaction
    from app.security import cookies
    from app.services.workspaces import logins

    def enter(actor: Any) -> FlaskClient:
        client = app.test_client()
        with app.app_context(), acting_as(actor), transaction():
            token = logins.begin_login(actor=actor, user_agent="tests")
        with app.test_request_context():
            name = cookies.cookie_name()
        client.set_cookie(name, token, domain="localhost")
        client.csrf = tokens.sign(app.config["SECRET_KEY"], "csrf", token)  # type: ignore[attr-defined]
        return client

    return enter


@pytest.fixture
def write_last_used() -> Iterator[Callable[[UUID], None]]:
    """Write when the keys and sign-ins of a workspace were last used, which nothing else does meanwhile."""
    from app.db import acting_as, transaction
    from app.services.workspaces import identity
    from app.services.workspaces import keys as workspace_keys

    def write(tenant_id: UUID) -> None:
        batch = workspace_keys.take_batches().get(tenant_id, {})
        with acting_as(identity.product_in(tenant_id)), transaction():
            workspace_keys.write_batch(batch)
        workspace_keys.forget_batch(batch)

    with workspace_keys.writing:
        yield write


@pytest.fixture(scope="session")
def executor(app: Flask) -> Iterator[Any]:
    """Create the executor of this test process, which runs sessions only through `drain`."""
    from app.jobs.executor import Executor

    one = Executor(app, slots=8)
    yield one
    one.stop()


@pytest.fixture
def run_sessions(executor: Any) -> Callable[[], int]:
    """Run every pending session to its end and give their number."""
    run: Callable[[], int] = executor.drain
    return run


class Api:
    """A client of the JSON API with a key."""

    def __init__(self, client: FlaskClient, key: str) -> None:
        self.client = client
        self.key = key

    def request(self, method: str, path: str, json: Any = None, headers: dict[str, str] | None = None) -> TestResponse:
        sent = {"Authorization": f"Bearer {self.key}", **(headers or {})}
        return self.client.open(path, method=method, json=json, headers=sent)

    def get(self, path: str, **more: Any) -> TestResponse:
        return self.request("GET", path, **more)

    def post(self, path: str, json: Any = None, **more: Any) -> TestResponse:
        return self.request("POST", path, json, **more)

    def patch(self, path: str, json: Any = None, **more: Any) -> TestResponse:
        return self.request("PATCH", path, json, **more)

    def delete(self, path: str, **more: Any) -> TestResponse:
        return self.request("DELETE", path, **more)


@pytest.fixture
def api(app: Flask) -> Callable[..., Api]:
    """Create an API client with a new key of this actor and these scopes."""
    from app.db import acting_as, transaction
    from app.services.workspaces import keys as workspace_keys

    def make(actor: Any, *scopes: str) -> Api:
        with app.app_context(), acting_as(actor), transaction():
            _, key = workspace_keys.create_key(
                name=f"k-{uuid4().hex[:6]}", scopes=list(scopes or ("admin",)), actor=actor
            )
        return Api(app.test_client(), key)

    return make


@pytest.fixture
def count_queries(app: Flask) -> Callable[[], Any]:
    """Collect the SQL statements of a block: `with count_queries() as seen:`, then `len(seen)`.

    Statements of sign-in, of binding the tenant and of other threads do not count.
    """
    from app.db import db, direct

    @contextmanager
    def counting() -> Iterator[list[str]]:
        seen: list[str] = []
        own = threading.get_ident()

        def note(_c: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
            ours = threading.get_ident() == own
            if ours and not re.search(r"bind_credential|set_config\('app\.tenant_id'", statement):
                seen.append(statement)

        def execute(connection: Any, statement: str, *rest: Any, **more: Any) -> Any:
            note(connection, None, statement)
            return really(connection, statement, *rest, **more)

        with app.app_context():
            engine = db.engine
        really = direct.execute
        event.listen(engine, "before_cursor_execute", note)
        try:
            direct.execute = execute
            yield seen
        finally:
            direct.execute = really
            event.remove(engine, "before_cursor_execute", note)

    return counting


def soup(response: TestResponse) -> BeautifulSoup:
    return BeautifulSoup(response.get_data(as_text=True), "html.parser")
