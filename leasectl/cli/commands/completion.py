"""``leasectl completion``: what makes a shell complete commands, options, types and handles."""

from __future__ import annotations

import click

from leasectl.backends.kinds import KINDS, either
from leasectl.cli.command import new_command
from leasectl.cli.shown.output import show

SHELLS = ("bash", "zsh", "fish")

EXAMPLE = """\b
Examples:
  source <(leasectl completion bash)
  leasectl completion fish
"""


_ASKED = either(kind.title for kind in KINDS if kind.claim_server and kind.has_pools)
HELP = f"""\
Print the script that lets a shell complete commands.

It completes commands, options, the types of pools after -t and --to, resources after --name and
--names, there after each comma, handles after --handle, and the works that once has results of.
All but handles are those of the embedded pools or, if it answers within a second, of {_ASKED}. For
good, put one line into your shell's start file:

\b
  bash  ~/.bashrc                    source <(leasectl completion bash)
  zsh   ~/.zshrc, after compinit     source <(leasectl completion zsh)
  fish  ~/.config/fish/config.fish   leasectl completion fish | source
"""


@new_command(help=HELP, epilog=EXAMPLE)
@click.argument("shell", type=click.Choice(SHELLS))
def command(*, shell: str) -> None:
    """As `HELP` has it."""
    from click.shell_completion import ShellComplete, get_completion_class

    from leasectl.cli.completion_scripts import register

    register()
    found = get_completion_class(shell)
    assert found is not None
    root = click.get_current_context().find_root().command
    script = found(root, {}, "leasectl", "_LEASECTL_COMPLETE")
    # Not its own source(): that of bash starts a bash only to ask for its version.
    show(ShellComplete.source(script) + "\n")
