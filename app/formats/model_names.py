"""What there is to say about a model before it is used: how it may be written, and which key it would need.

The runtime finds out for itself when it opens a model; a page must not load the libraries for that.
"""

from collections.abc import Callable

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
