"""What an agent is: its instructions, model, tools and limits, as one version of it holds them."""

import re
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from pydantic_core import ErrorDetails

from app.errors import Invalid
from app.formats.messages import must, sentence
from app.text.hidden_characters import describe_hidden

# Which tools each group holds, by name: what a rule can speak of. `app.tools` has the tools themselves.
TOOLS_OF_GROUP = {
    "context": (
        "getContext", "listSharedContext", "addCorrection", "addLesson", "addInsight", "updateSharedContext",
        "deactivateSharedContext", "saveMemory",
    ),
    "feedback-review": ("listFeedback", "getFeedback", "reviewFeedback", "addFeedback"),
    "entities-read": (
        "listEntityTypes", "searchEntities", "listEntities", "getEntity", "listResponses", "listCriteriaSets",
    ),
    "entities-write": ("createEntity", "updateEntity", "submitResponse"),
    "agents-admin": ("listAgents", "getAgent", "updateAgentConfig", "updateEntityType", "withdrawDraft"),
}  # fmt: skip
TOOL_GROUPS = tuple(TOOLS_OF_GROUP)
TOOL_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}", re.ASCII)
HEADER = re.compile(r"[A-Za-z0-9-]{1,60}", re.ASCII)
# Whoever writes an agent's configuration names variables that are sent to an address of their choice, so only
# variables that the operator meant for this can be named.
ENV_PREFIX = "UPSHOT_TOOL_"
ENV_NAME = re.compile(ENV_PREFIX + r"[A-Z0-9_]{1,60}", re.ASCII)
MAX_TEXT = 40_000
WEB_ADDRESS = re.compile(r"https?://[^/\s]\S{0,1990}")


def tool_names(groups: Iterable[str]) -> set[str]:
    return {name for group in groups for name in TOOLS_OF_GROUP.get(group, ())}


def headers_env(headers: dict[str, str]) -> dict[str, str]:
    for header, name in headers.items():
        if not HEADER.fullmatch(header):
            raise ValueError(f"{header[:60]!r} isn’t a header name.")
        if not ENV_NAME.fullmatch(name):
            raise ValueError(f"Enter the name of a server variable that starts with {ENV_PREFIX}.")
    return headers


Stripped = Annotated[str, StringConstraints(strip_whitespace=True)]
Name = Annotated[
    str, must(TOOL_NAME.fullmatch, "Letters, digits, dashes and underscores, beginning with a letter, at most 64.")
]
Group = Annotated[str, must(TOOL_GROUPS.__contains__, f"Use some of {', '.join(TOOL_GROUPS)}.")]
Model = Annotated[
    Stripped,
    must(
        lambda name: len(name) <= 200 and name.isprintable(),
        "Enter a model such as offline, openai:gpt-5 or anthropic:claude-sonnet-4-5.",
    ),
]
Address = Annotated[
    Stripped,
    must(
        lambda url: not url or (url.isprintable() and WEB_ADDRESS.fullmatch(url)),
        "Enter a URL that starts with http:// or https://.",
    ),
]
Headers = Annotated[dict[str, str], Field(max_length=20), AfterValidator(headers_env)]
Text = Annotated[str, Field(max_length=MAX_TEXT)]


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Skill(Part):
    """A named block of instructions."""

    name: Annotated[str, Field(min_length=1, max_length=80)]
    text: Annotated[str, Field(min_length=1, max_length=MAX_TEXT)]


class HttpTool(Part):
    """A tool behind an HTTP address. `parameters` is a JSON schema."""

    name: Name
    description: Annotated[str, Field(max_length=2000)] = ""
    url: Address
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"] = "GET"
    parameters: dict[str, Any] = {}
    writes: bool = True
    headers_env: Headers = {}


class McpServer(Part):
    """A server whose tools the agent may use."""

    name: Name
    url: Address
    headers_env: Headers = {}


class Limits(Part):
    """How far one run goes: questions to the model, tool calls, seconds, and characters of an answer. `runs` is how
    many runs of the agent one process has at once; 0 is no limit."""

    requests: Annotated[int, Field(ge=1, le=100)] = 12
    tool_calls: Annotated[int, Field(ge=0, le=500)] = 24
    seconds: Annotated[int, Field(ge=1, le=1800)] = 120
    output_chars: Annotated[int, Field(ge=100, le=60_000)] = 20_000
    runs: Annotated[int, Field(ge=0, le=1000)] = 0


class AgentConfig(Part):
    """One version of an agent. An empty model means the one the server is set to."""

    instructions: Text = ""
    skills: Annotated[list[Skill], Field(max_length=30)] = []
    model: Model = ""
    tool_groups: list[Group] = []
    http_tools: Annotated[list[HttpTool], Field(max_length=30)] = []
    mcp_servers: Annotated[list[McpServer], Field(max_length=10)] = []
    endpoint_url: Address = ""
    endpoint_headers_env: Headers = {}
    limits: Limits = Limits()

    def stored(self) -> dict[str, Any]:
        """As a version keeps it."""
        return self.model_dump(mode="json")


def check_config(given: dict[str, Any]) -> AgentConfig:
    """Check a configuration; Invalid has a sentence for each place, such as `http_tools.0.url`."""
    try:
        config = AgentConfig.model_validate(given)
    except ValidationError as error:
        raise Invalid.of({_place(found): sentence(found) for found in error.errors(include_url=False)}) from None
    wrong: dict[str, str] = {}
    for part in ("skills", "http_tools", "mcp_servers"):
        names = [one.name for one in getattr(config, part)]
        wrong |= {f"{part}.{i}.name": f"There are two called {n}." for i, n in enumerate(names) if n in names[:i]}
    for part in ("http_tools", "mcp_servers"):
        addresses = [one.url for one in getattr(config, part)]
        wrong |= {f"{part}.{i}.url": "Enter a URL." for i, address in enumerate(addresses) if not address}
    wrong |= {place: sentence for place, sentence in _wrong_texts(config).items() if sentence}
    if wrong:
        raise Invalid.of(wrong)
    return config


def _wrong_texts(config: AgentConfig) -> dict[str, str]:
    """What is wrong with the texts that go into prompts as they are. Asked on saving only: a version that was saved
    before this was asked keeps its text."""
    wrong = {"instructions": describe_hidden(config.instructions)}
    for place, skill in enumerate(config.skills):
        one_line = skill.name.strip() and not re.search(r"[\r\n]", skill.name)
        wrong[f"skills.{place}.name"] = describe_hidden(skill.name) if one_line else "Enter a name on one line."
        wrong[f"skills.{place}.text"] = describe_hidden(skill.text)
    return wrong


def _place(found: ErrorDetails) -> str:
    """Where it is wrong. What is wrong with one of several groups is wrong with the groups."""
    place = found["loc"][:1] if found["loc"][0] == "tool_groups" else found["loc"]
    return ".".join(map(str, place))


def read_config(stored: dict[str, Any]) -> AgentConfig:
    """What a version says. Versions live for ever: what an older or newer release wrote differently has its default."""
    known = {name: value for name, value in stored.items() if name in AgentConfig.model_fields}
    try:
        return AgentConfig.model_validate(known)
    except ValidationError as error:
        wrong = {problem["loc"][0] for problem in error.errors(include_url=False) if problem["loc"]}
        return AgentConfig.model_validate({name: value for name, value in known.items() if name not in wrong})


# Models, as far as a page can tell without their libraries

OFFLINE = "offline"
# Providers whose libraries come with Upshot, and the variable that holds the key of each.
KEYS = {
    "openai": "OPENAI_API_KEY",
    "openai-chat": "OPENAI_API_KEY",
    "openai-responses": "OPENAI_API_KEY",
    "anthropic": "ANTHROPIC_API_KEY",
    "deepseek": "DEEPSEEK_API_KEY",
    "openrouter": "OPENROUTER_API_KEY",
}
COMPATIBLE = ("openai", "openai-chat")
EXAMPLES = ("openai:gpt-5", "openai:gpt-5-mini", "anthropic:claude-sonnet-4-5", "anthropic:claude-haiku-4-5")
ModelKnowledge = Callable[[str], bool]


def about_model(name: str, *, server: str, server_is_here: bool, knows: ModelKnowledge) -> str:
    """One sentence on what a model needs that is not there, or nothing. `server` is the OpenAI-compatible server that
    was set, and `knows` says whether a variable has a value."""
    provider, colon, _ = name.partition(":")
    if name == OFFLINE or not name:
        return ""
    if server and (not colon or provider in COMPATIBLE):
        missing = not server_is_here and not knows("OPENAI_API_KEY")
        return f"{name} at {server} needs OPENAI_API_KEY where Upshot runs." if missing else ""
    if not colon:
        where = "set UPSHOT_OPENAI_BASE_URL to the server that has it"
        return f"There is no model {name}; write it as openai:gpt-5, or {where}."
    variable = KEYS.get(provider)
    return f"{name} needs {variable} where Upshot runs." if variable and not knows(variable) else ""
