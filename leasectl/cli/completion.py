"""``leasectl completion``: what makes a shell complete commands, options, types and handles."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import click

from leasectl.backends.kinds import KINDS, either, kind_of
from leasectl.cli.command import new_command
from leasectl.cli.context import choose_backend, settings, state_directory
from leasectl.cli.output import show

_SERVER_SECONDS = 1.0

SHELLS = ("bash", "zsh", "fish")

EXAMPLE = """\b
Examples:
  source <(leasectl completion bash)
  leasectl completion fish
"""


_ASKED = either(kind.title for kind in KINDS if kind.pool_server)
HELP = f"""\
Print the script that lets a shell complete commands.

It completes commands, options, the types of pools after -t, and handles after --handle. Types
are those of the embedded pools or, if it answers within a second, of {_ASKED}. For good, put one
line into your shell's start file:

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


def known_types(backend: str | None = None) -> Sequence[str]:
    """The types of the pools of a backend; none when they can't be read, or aren't its own.

    Args:
        backend: What ``--backend`` says.
    """
    from leasectl.backends.opening import pool_types
    from leasectl.errors import LeaseError
    from leasectl.state import read_only
    from leasectl.system.clock import Clock

    url = choose_backend(backend).url
    with contextlib.suppress(LeaseError):
        kind = kind_of(url)
        if kind.has_pools and not kind.remote:
            return read_only.pool_types(state_directory())
        return pool_types(url, settings(), seconds=_SERVER_SECONDS, clock=Clock())
    return []


def known_handles(*, released_too: bool) -> list[tuple[str, str]]:
    """Ids and holder identities of handles; none when they can't be read."""
    from leasectl.state import read_only

    return read_only.handle_ids(state_directory(), released_too=released_too)
