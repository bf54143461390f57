"""From the name of a model to the model, or to one sentence that says what to set."""

from __future__ import annotations

import re
import threading
from asyncio import AbstractEventLoop
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from app.agents.outside.secrets import hide_in
from app.config import LOOPBACK, Settings, variable
from app.errors import Refused, Unusable
from app.formats.model_names import KEYS, OFFLINE

if TYPE_CHECKING:
    from pydantic_ai.models import Model

# How a model of an OpenAI-compatible server may be written.
OPENAI = ("openai:", "openai-chat:")
NEEDED = re.compile(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*_(?:KEY|TOKEN)\b")
# A model's connections belong to the loop that opened them, so each loop has models of its own.
_known: WeakKeyDictionary[AbstractEventLoop, dict[tuple[str, str, str], Model]] = WeakKeyDictionary()
# Making a model takes time, so that runs that begin together make it once.
_making = threading.Lock()


class NoModel(Refused):
    """The model cannot be used as things are set."""

    title = "The model cannot be used"


class UnknownModel(NoModel):
    """No key and no setting would make it work: nobody knows the model, or what it needs is not installed."""


def name_of(configured: str, settings: Settings) -> str:
    """The model that an agent uses: its own, else the one the server is set to."""
    return configured or settings.model


def kept_model(configured: str, settings: Settings, loop: AbstractEventLoop) -> Model | None:
    """The model of that name if the loop has asked it before."""
    return _known.get(loop, {}).get(_key(configured, settings))


def find_model(configured: str, settings: Settings, loop: AbstractEventLoop | None = None) -> Model:
    """The model of that name. With the loop that asks it, models are kept, so that connections are used again."""
    name = name_of(configured, settings)
    if name == OFFLINE:
        from app.agents.offline.model import offline_model

        return offline_model()
    key = _key(configured, settings)
    with _making:
        known = _known.setdefault(loop, {}) if loop is not None else {}
        if key not in known:
            compatible = settings.openai_base_url and (":" not in name or name.startswith(OPENAI))
            known[key] = _compatible(name, settings) if compatible else _hosted(name)
        return known[key]


def _key(configured: str, settings: Settings) -> tuple[str, str, str]:
    return name_of(configured, settings), settings.openai_base_url, variable("OPENAI_API_KEY")


def load() -> None:
    """Load all that the first question to a model needs, prices and certificates too. Nothing is asked."""
    _compatible("none", Settings(openai_base_url="http://127.0.0.1/v1"))


def check_model(configured: str, settings: Settings) -> None:
    """Raise NoModel, with what to set, for a model that could not answer."""
    if name_of(configured, settings) != OFFLINE:
        find_model(configured, settings)


def refuse_unknown(settings: Settings) -> None:
    """Raise Unusable when the server is set to a model that there is not. One that only lacks its key is a matter for
    the pages, since agents may use other ones; for the usual providers no library is loaded here."""
    provider, colon, _ = settings.model.partition(":")
    if colon and provider in KEYS:
        return
    try:
        check_model("", settings)
    except UnknownModel as trouble:
        raise Unusable(f"UPSHOT_MODEL is {settings.model}. {trouble}") from None
    except NoModel:
        return


def _compatible(name: str, settings: Settings) -> Model:
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.profiles.openai import OpenAIModelProfile
    from pydantic_ai.providers.openai import OpenAIProvider

    from app.agents.outside.client import model_client

    key = variable("OPENAI_API_KEY")
    if not key and urlsplit(settings.openai_base_url).hostname not in LOOPBACK:
        raise NoModel(
            f"The model {name} at {settings.openai_base_url} needs a key; set OPENAI_API_KEY where Upshot runs."
        )
    bare = next((name.removeprefix(prefix) for prefix in OPENAI if name.startswith(prefix)), name)
    # Servers on one's own machine often know only the older name of the limit on tokens.
    profile = OpenAIModelProfile(openai_chat_supports_max_completion_tokens=False)
    provider = OpenAIProvider(base_url=settings.openai_base_url, api_key=key or "none", http_client=model_client())
    return OpenAIChatModel(bare, provider=provider, profile=profile)


def _hosted(name: str) -> Model:
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
        raise NoModel(_missing(name, str(trouble))) from None


def _missing(name: str, said: str) -> str:
    wanted = NEEDED.search(said)
    if wanted is not None:
        return f"The model {name} needs a key; set {wanted[0]} where Upshot runs and start it again."
    return hide_in(f"The model {name} cannot be used: {said[:200].rstrip('.')}.")


def is_offline(model: Any) -> bool:
    return getattr(model, "model_name", "") == OFFLINE
