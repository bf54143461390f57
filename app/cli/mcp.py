"""`upshot mcp`: the Model Context Protocol on standard input and output, for programs on this machine."""

from pathlib import Path

import click

from app.cli.output import opened_app, plain_failures
from app.config import variable
from app.errors import Unusable

VARIABLE = "UPSHOT_API_KEY"


@click.command()
@click.option(
    "--key-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help=f"A file with an API key on its first line; else the key is taken from {VARIABLE}.",
)
@plain_failures
def mcp(key_file: Path | None) -> None:
    """Serve MCP on standard input and output, with the rights of an API key.

    The key comes from the variable UPSHOT_API_KEY or from a file, never from the command line, where everybody on the
    machine could read it.
    """
    key = _key(key_file)
    with opened_app() as app:
        from app.tools.mcp_server import serve_stdio

        serve_stdio(key, app.config["VERSION"])


def _key(key_file: Path | None) -> str:
    if key_file is None:
        key = variable(VARIABLE)
    else:
        try:
            key = key_file.read_text(encoding="utf-8").partition("\n")[0].strip()
        except (OSError, UnicodeDecodeError):
            raise Unusable(f"{key_file} cannot be read; give a file with an API key on its first line.") from None
    if not key:
        raise Unusable(f"There is no API key; set {VARIABLE} or give --key-file. `upshot key create` makes one.")
    return key
