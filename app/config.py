"""Environment → frozen Settings. The only module that reads `os.environ`."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from ipaddress import ip_address
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

from app.errors import Invalid, Unusable
from app.formats.model_slots import read_model_slots
from app.formats.outbound_rules import read_allow
from app.formats.session_limits import SESSION_BYTES

# Before numpy is loaded: on matrices as small as ours its threads cost more than they gain, and requests, runs and
# reviews share the cores already.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# A word of the name, so that MONKEY=… is not one of them.
SECRET_NAME = re.compile(r"(?:^|_)(?:KEY|TOKEN|SECRET|PASSWORD|DATABASE_URL|TOOL)(?:_|$)", re.ASCII)
MIN_SECRET_LENGTH = 8
HIDDEN = "[hidden]"
# Lone surrogates and NUL cannot be stored; they become replacement characters.
UNSTORABLE = dict.fromkeys((0, *range(0xD800, 0xE000)), "\ufffd")
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


def setting(about: str, default: Any = "", least: int = 0, most: int = 0, wanted: str = "a whole number") -> Any:
    """A field of Settings: what it means, its default, and for a number from where to where."""
    return field(default=default, metadata={"about": about, "range": (least, most, wanted)})


def variable_of(setting: Field[Any]) -> str:
    """The variable that sets a field. A property has the plain name of what is still to be read or defaulted."""
    return f"UPSHOT_{re.sub('_(text|wanted)$', '', setting.name).upper()}"


@dataclass(frozen=True)
class Settings:
    """What the operator decided."""

    # How many connections to the database the runs of a process share.
    run_threads: ClassVar[int] = 8

    host: str = setting("Address to listen on.", "127.0.0.1")
    port: int = setting("Port to listen on.", 8000, 0, 65535, "a port")
    data_dir_text: str = setting("Where the embedded database and the secret key are kept.", "var")
    database_url: str = setting("PostgreSQL 15 or newer, as the app role; the embedded one when unset.")
    prepared_statements_text: str = setting("`off` for a pooler that does not know prepared statements.", "on")
    owner_database_url: str = setting("The same database as its owner; used by `upshot db …` only.")
    secret_key: str = setting("At least 32 random characters; made and kept in the data directory when unset.")
    model: str = setting("The model that agents use unless theirs says otherwise.", "offline")
    openai_base_url: str = setting("An OpenAI-compatible server for models.")
    base_url: str = setting("The address people type, such as https://upshot.example.com; needed behind a proxy.")
    trusted_hosts_text: str = setting("Host names to answer to, separated by commas; others get 400.")
    trusted_proxy: str = setting("Address of the reverse proxy whose X-Forwarded headers are believed.")
    metrics_token: str = setting("At least 32 random characters; opens `/metrics` from other machines.")
    outbound_allow: str = setting("Private hosts and `host:port` that agents may reach, separated by commas.")
    processes_wanted: int = setting(
        "How many processes answer requests; one for each core, at most four, when unset.", 0, 1, 64
    )
    threads: int = setting("How many requests each process works on at once.", 16, 2, 1000)
    executor_text: str = setting("`off` leaves running agents to `upshot worker` processes.", "on")
    slots: int = setting("How many sessions one process runs at once.", 32, 1, 500)
    model_slots: str = setting(
        "How many requests a model server gets at once from one process: a number, or `host:port=number` and"
        " `provider=number` separated by commas; no limit when unset."
    )
    lease_seconds: int = setting(
        "A session without a sign of life for so long is taken over.", 60, 2, 3600, "a whole number of seconds"
    )
    machine_feedback_rate: int = setting(
        "How many messages a minute a process checks for feedback in each workspace; of more, a sample. 0 checks none.",
        600,
        0,
        1_000_000,
        "messages a minute",
    )
    knowledge_suites: str = setting("Python modules with knowledge suites of your own, separated by commas.")
    session_max_bytes: int = setting(
        "How many bytes of events one session may hold, from 1000000 to 999999999.",
        SESSION_BYTES,
        1_000_000,
        999_999_999,
        "bytes",
    )

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Settings:
        source = os.environ if environ is None else environ
        texts = {f: source.get(variable_of(f), "").strip() for f in fields(cls)}
        settings = cls(**{f.name: _parse_setting(f, text) for f, text in texts.items() if text})
        settings.check()
        return settings

    def check(self) -> None:
        """Refuse settings that cannot work, with a sentence that says what to change."""
        if not _can_be_host(self.host):
            raise Unusable(f"UPSHOT_HOST is {self.host}; give an address of this machine, such as 127.0.0.1.")
        for name, switch in (
            ("UPSHOT_EXECUTOR", self.executor_text),
            ("UPSHOT_PREPARED_STATEMENTS", self.prepared_statements_text),
        ):
            if switch not in {"on", "off"}:
                raise Unusable(f"{name} is {switch}; write on or off.")
        for name, secret in (("UPSHOT_SECRET_KEY", self.secret_key), ("UPSHOT_METRICS_TOKEN", self.metrics_token)):
            if secret and (len(secret) < 32 or len(set(secret)) < 8):
                raise Unusable(f"{name} is too short or not random; give at least 32 random characters.")
        for name, url in (("UPSHOT_BASE_URL", self.base_url), ("UPSHOT_OPENAI_BASE_URL", self.openai_base_url)):
            if url and not url.startswith(("http://", "https://")):
                raise Unusable(f"{name} must begin with http:// or https://.")
        if self.trusted_proxy and not _is_address(self.trusted_proxy):
            raise Unusable("UPSHOT_TRUSTED_PROXY must be the proxy's IP address, such as 127.0.0.1.")
        try:
            read_allow(self.outbound_allow)
        except Invalid as wrong:
            raise Unusable(f"UPSHOT_OUTBOUND_ALLOW cannot be read: {wrong.detail}") from None
        try:
            read_model_slots(self.model_slots)
        except Invalid as wrong:
            raise Unusable(f"UPSHOT_MODEL_SLOTS cannot be read: {wrong.detail}") from None

    @property
    def processes(self) -> int:
        """Only Linux spreads connections over processes that listen on one port."""
        if sys.platform != "linux":
            return 1
        return self.processes_wanted or min(4, len(os.sched_getaffinity(0)))

    @property
    def runs_agents(self) -> bool:
        return self.executor_text == "on"

    @property
    def prepares_statements(self) -> bool:
        return self.prepared_statements_text == "on"

    @property
    def suite_modules(self) -> list[str]:
        return [name.strip() for name in self.knowledge_suites.split(",") if name.strip()]

    @property
    def data_dir(self) -> Path:
        return Path(self.data_dir_text).expanduser().absolute()

    @property
    def embedded(self) -> bool:
        return not self.database_url

    @property
    def on_loopback(self) -> bool:
        return self.host in LOOPBACK

    @property
    def secure(self) -> bool:
        """Cookies are `__Host-` and Secure exactly when people come over TLS."""
        return self.base_url.startswith("https://")

    @property
    def url(self) -> str:
        """The address to print: what people type, else what we listen on."""
        if self.base_url:
            return self.base_url.rstrip("/")
        host = "127.0.0.1" if self.host in {"0.0.0.0", "::"} else self.host  # noqa: S104 - only compared
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    @property
    def trusted_hosts(self) -> list[str]:
        """Names a request may come in under. Loopback always works, so that health checks on the machine do."""
        named = [host.strip() for host in self.trusted_hosts_text.split(",") if host.strip()]
        own = [urlsplit(self.base_url).hostname or ""] if self.base_url else []
        listened = [] if self.host in {"0.0.0.0", "::"} else [self.host]  # noqa: S104 - only compared
        return [*dict.fromkeys(_as_host(name) for name in (*named, *own, *listened, *sorted(LOOPBACK)) if name)]


def _parse_setting(setting: Field[Any], text: str) -> Any:
    if not isinstance(setting.default, int):
        return text
    least, most, wanted = setting.metadata["range"]
    if not (re.fullmatch("[0-9]{1,9}", text, re.ASCII) and least <= int(text) <= most):
        raise Unusable(f"{variable_of(setting)} is {text}; give {wanted} from {max(least, 1)} to {most}.")
    return int(text)


class _Address(str):
    """An IPv6 address as in `Host`. Werkzeug cuts trusted names at their first colon; this one stays whole."""

    __slots__ = ()

    def partition(self, sep: str, /) -> tuple[str, str, str]:
        return str(self), "", ""


def _as_host(name: str) -> str:
    bare = name.removeprefix("[").partition("]")[0] if name.startswith("[") else name
    return _Address(f"[{ip_address(bare).compressed}]") if ":" in bare and _is_address(bare) else name


def _can_be_host(text: str) -> bool:
    """An address, or a name. What has only digits and dots is meant as an address."""
    name = re.fullmatch(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?", text, re.ASCII)
    return _is_address(text) or (name is not None and re.search("[A-Za-z]", text) is not None)


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def variable(name: str) -> str:
    """A variable that is no setting of ours, such as a provider's key; empty when unset."""
    return os.environ.get(name, "").strip()


def secret_values() -> list[str]:
    """What must never be shown: every variable whose name says that it is a secret, the longest first. Of `Bearer abc…`
    the second word alone is secret too. Where a secret may be sent is none."""
    named = [value for name, value in os.environ.items() if SECRET_NAME.search(name) and not name.endswith("_HOSTS")]
    found = {part for value in named for part in (value.strip(), *value.split())}
    return sorted((value for value in found if len(value) >= MIN_SECRET_LENGTH), key=len, reverse=True)


def redact(value: Any, secrets: list[str] | None = None) -> Any:
    """Return the value without secrets and without characters that cannot be stored."""
    found = secret_values() if secrets is None else secrets
    if isinstance(value, str):
        return redact_text(value, found)
    if isinstance(value, dict):
        return {redact(str(name), found): redact(inner, found) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [redact(inner, found) for inner in value]
    return value


def redact_text(text: str, secrets: list[str] | None = None) -> str:
    text = text.translate(UNSTORABLE)
    for secret in secret_values() if secrets is None else secrets:
        text = text.replace(secret, HIDDEN)
    return text


def documented() -> list[tuple[str, str, str]]:
    """(name, default, meaning) of every setting, for the documentation and its test."""
    return [(variable_of(f), str(f.default or ""), f.metadata["about"]) for f in fields(Settings)]
