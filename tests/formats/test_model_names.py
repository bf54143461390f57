"""What a page says about a model is what the runtime finds when it opens it."""

from __future__ import annotations

import pytest

from app.agents.models import NoModel, check_model
from app.config import Settings
from app.formats.agent_config import EXAMPLES, KEYS
from app.services.agents.edit import status_of, suggest_models

NAMES = [*EXAMPLES, "offline", "", "gpt-5", *(f"{provider}:openai/some-model" for provider in KEYS)]
SERVERS = ["", "http://127.0.0.1:9/v1", "https://models.example/v1"]


def refused(name: str, settings: Settings) -> bool:
    try:
        check_model(name, settings)
    except NoModel:
        return True
    return False


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("with_keys", [False, True])
def test_the_page_and_the_runtime_agree(server: str, with_keys: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in set(KEYS.values()):
        monkeypatch.delenv(variable, raising=False)
        if with_keys:
            monkeypatch.setenv(variable, "a-key-for-tests")
    settings = Settings(openai_base_url=server)
    for name in NAMES:
        said = status_of(name, settings)["trouble"]
        assert bool(said) == refused(name, settings), f"{name}: {said}"


def test_suggestions_begin_with_what_needs_nothing() -> None:
    assert suggest_models(Settings())[0] == "offline"
    assert suggest_models(Settings(model="openai:mine"))[:2] == ["offline", "openai:mine"]
    assert status_of("", Settings(model="openai:mine"))["name"] == "openai:mine"
    assert status_of("", Settings())["name"] == "offline"
