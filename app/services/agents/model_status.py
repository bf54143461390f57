"""What an agent's page says about models: which there are to choose from, and what one would still need."""

from urllib.parse import urlsplit

from app.config import LOOPBACK, Settings, variable
from app.formats.agent_config import EXAMPLES, OFFLINE, about_model


def status_of(configured: str, settings: Settings) -> dict[str, str]:
    """The model that an agent uses in the end, and what that still needs. An empty name is the server's."""
    name, server = configured or settings.model, settings.openai_base_url
    here = urlsplit(server).hostname in LOOPBACK
    trouble = about_model(name, server=server, server_is_here=here, knows=lambda wanted: bool(variable(wanted)))
    return {"name": name, "trouble": trouble}


def suggest_models(settings: Settings) -> list[str]:
    """Models to offer in the form: ours, the server's, and some of the providers'."""
    return list(dict.fromkeys([OFFLINE, settings.model, *EXAMPLES]))
