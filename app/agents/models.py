"""Finds the model for a name, or says in one sentence what to set."""

from __future__ import annotations

import re
import threading
from asyncio import AbstractEventLoop
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from app.config import LOOPBACK, Settings, redact_text, variable
from app.errors import Refused, Unusable
from app.formats.agent_config import KEYS, OFFLINE

if TYPE_CHECKING:
    from pydantic_ai.models import Model

# Prefixes for models of an OpenAI-compatible server.
OPENAI_PREFIXES = ("openai:", "openai-chat:")
KEY_VARIABLE = re.compile(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*_(?:KEY|TOKEN)\b")
# A model's connections belong to the event loop that opened them, so each loop has its own models.
_cache: WeakKeyDictionary[AbstractEventLoop, dict[tuple[str, str, str], Model]] = WeakKeyDictionary()
# Creating a model is slow, so runs that start together create it once.
_cache_lock = threading.Lock()


class NoModel(Refused):
    """The model cannot be used with the current settings."""

    title = "The model cannot be used"


class UnknownModel(NoModel):
    """The model does not exist, or its package is not installed. No setting would help."""


def find_model(configured: str, settings: Settings, loop: AbstractEventLoop | None = None) -> Model:
    """An agent's own model, else the server's default. Models are cached per loop, so that connections are reused."""
    name = configured or settings.model
    if name == OFFLINE:
        from app.agents.offline.model import offline_model

        return offline_model()
    key = (name, settings.openai_base_url, variable("OPENAI_API_KEY"))
    with _cache_lock:
        known = _cache.setdefault(loop, {}) if loop is not None else {}
        if key not in known:
            known[key] = _compatible_model(name, settings) if _is_compatible(name, settings) else _hosted_model(name)
        return known[key]


def server_of(configured: str, settings: Settings) -> str:
    """The server that a model is asked at, as `UPSHOT_MODEL_SLOTS` names it: host and port of the OpenAI-compatible
    one, or the provider. Empty for the offline model, which asks nobody."""
    name = configured or settings.model
    if name == OFFLINE:
        return ""
    if _is_compatible(name, settings):
        return urlsplit(settings.openai_base_url).netloc.lower()
    return name.partition(":")[0].lower()


def _is_compatible(name: str, settings: Settings) -> bool:
    """Whether the OpenAI-compatible server has it."""
    return bool(settings.openai_base_url) and (":" not in name or name.startswith(OPENAI_PREFIXES))


def preload() -> None:
    """Load everything that the first request needs, prices and certificates too, without sending one."""
    _compatible_model("none", Settings(openai_base_url="http://127.0.0.1/v1"))


def check_model(configured: str, settings: Settings) -> None:
    """Raise NoModel, with what to set, for a model that cannot be used."""
    if (configured or settings.model) != OFFLINE:
        find_model(configured, settings)


def check_default_model(settings: Settings) -> None:
    """Raise Unusable when the default model does not exist. Pages report a missing key instead, because agents may use
    other models. For the usual providers no library is loaded."""
    provider, colon, _ = settings.model.partition(":")
    if colon and provider in KEYS:
        return
    try:
        check_model("", settings)
    except UnknownModel as trouble:
        raise Unusable(f"UPSHOT_MODEL is {settings.model}. {trouble}") from None
    except NoModel:
        return


def _compatible_model(name: str, settings: Settings) -> Model:
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.profiles.openai import OpenAIModelProfile
    from pydantic_ai.providers.openai import OpenAIProvider

    from app.agents.outside.client import model_client

    key = variable("OPENAI_API_KEY")
    if not key and urlsplit(settings.openai_base_url).hostname not in LOOPBACK:
        raise NoModel(
            f"The model {name} at {settings.openai_base_url} needs a key. Set OPENAI_API_KEY where Upshot runs."
        )
    bare = next((name.removeprefix(prefix) for prefix in OPENAI_PREFIXES if name.startswith(prefix)), name)
    # Local servers often know only the older name of the token limit.
    profile = OpenAIModelProfile(openai_chat_supports_max_completion_tokens=False)
    provider = OpenAIProvider(base_url=settings.openai_base_url, api_key=key or "none", http_client=model_client())
    return OpenAIChatModel(bare, provider=provider, profile=profile)


def _hosted_model(name: str) -> Model:
    unknown = UnknownModel(
        f"There is no model {name}; use offline, a model such as openai:gpt-5, or set UPSHOT_OPENAI_BASE_URL to"
        " the server that has it."
    )
    if ":" not in name:
        raise unknown
    from pydantic_ai.exceptions import UserError
    from pydantic_ai.models import infer_model

    try:
        return infer_model(name)
    except ImportError:
        raise UnknownModel(f"The model {name} needs a package that is not installed with Upshot.") from None
    except (UserError, ValueError) as trouble:
        if str(trouble).startswith("Unknown "):
            raise unknown from None
        wanted = KEY_VARIABLE.search(str(trouble))
        if wanted is not None:
            why = f"The model {name} needs a key. Set {wanted[0]} where Upshot runs and start it again."
        else:
            why = redact_text(f"The model {name} cannot be used: {str(trouble)[:200].rstrip('.')}.")
        raise NoModel(why) from None


def is_offline(model: Any) -> bool:
    return getattr(model, "model_name", "") == OFFLINE
