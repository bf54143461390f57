"""The `upshot` command. Each group is imported when it is used, so that `--help` is quick."""

import sys
from importlib import import_module

import click

COMMANDS = {
    "serve": ("app.cli.serve", "Run the server."),
    "worker": ("app.cli.serve", "Run agents in a process of its own."),
    "mcp": ("app.cli.serve", "Serve MCP on standard input and output."),
    "db": ("app.cli.db", "Set up, upgrade and check the database."),
    "demo": ("app.cli.intake", "Create or recreate the demo workspace."),
    "tenant": ("app.cli.people", "Create workspaces."),
    "user": ("app.cli.people", "Create people."),
    "key": ("app.cli.people", "Create API keys."),
    "import": ("app.cli.intake", "Import recorded sessions."),
    "feedback": ("app.cli.intake", "Give feedback."),
    "evals": ("app.cli.knowledge_evals", "Compare sessions, replay golden sets and grade knowledge."),
    "review": ("app.cli.review", "Review feedback."),
    "signin-link": ("app.cli.people", "Print a one-time sign-in link."),
}


class Lazy(click.Group):
    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        # `import` is a word of Python, so the name in the module ends with an underscore.
        attribute = "import_" if name == "import" else name.replace("-", "_")
        found = getattr(import_module(COMMANDS[name][0]), attribute)
        return found if isinstance(found, click.Command) else None

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, about) for name, (_, about) in COMMANDS.items()])


def main() -> None:
    """Run the command. Ctrl-C ends it without a traceback."""
    try:
        command(prog_name="upshot")
    except KeyboardInterrupt:
        sys.exit(130)


@click.command(cls=Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="upshot", prog_name="upshot")
def command() -> None:
    """Upshot turns every agent interaction into durable workspace intelligence."""
