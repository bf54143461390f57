"""What an agent's page says about models: which there are to choose from, and what one would still need."""

from dataclasses import dataclass
from urllib.parse import urlsplit

from app.config import LOOPBACK, Settings, variable
from app.formats.model_names import EXAMPLES, OFFLINE, about_model


@dataclass(frozen=True)
class ModelStatus:
    """`name` is what the agent uses in the end, `trouble` what that still needs; `offline` is our own model."""

    name: str
    trouble: str
    offline: bool


def status_of(configured: str, settings: Settings) -> ModelStatus:
    """What there is to say about the model of an agent. An empty name is the server's."""
    name = configured or settings.model
    here = urlsplit(settings.openai_base_url).hostname in LOOPBACK
    trouble = about_model(
        name, server=settings.openai_base_url, server_is_here=here, knows=lambda wanted: bool(variable(wanted))
    )
    return ModelStatus(name, trouble, name == OFFLINE)


def suggest_models(settings: Settings) -> list[str]:
    """Models to offer in the form: ours, the server's, and some of the providers'."""
    return list(dict.fromkeys([OFFLINE, settings.model, *EXAMPLES]))
