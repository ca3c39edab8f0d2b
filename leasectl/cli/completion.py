"""``leasectl completion``: what makes a shell complete commands, options, types and handles."""

from __future__ import annotations

import contextlib

import click

from leasectl.backends.opening import LOCAL
from leasectl.cli.context import choose_backend, settings, state_directory
from leasectl.cli.output import show
from leasectl.engines.etcd.address import is_etcd

_ETCD_SECONDS = 1.0
# So that with a member that is down there is time for another.
_MEMBER_SECONDS = 0.4

SHELLS = ("bash", "zsh", "fish")

EXAMPLE = """\b
Examples:
  source <(leasectl completion bash)
  leasectl completion fish
"""


@click.command(epilog=EXAMPLE)
@click.argument("shell", type=click.Choice(SHELLS))
def command(*, shell: str) -> None:
    """Print the script that lets a shell complete commands.

    It completes commands, options, the types of pools after -t, and handles after --handle. Types
    are those of the embedded pools or, if it answers within a second, of etcd. For good, put one
    line into your shell's start file:

    \b
      bash  ~/.bashrc                    source <(leasectl completion bash)
      zsh   ~/.zshrc, after compinit     source <(leasectl completion zsh)
      fish  ~/.config/fish/config.fish   leasectl completion fish | source
    """
    from click.shell_completion import ShellComplete, get_completion_class

    from leasectl.cli.app import command as root

    found = get_completion_class(shell)
    assert found is not None
    script = found(root, {}, "leasectl", "_LEASECTL_COMPLETE")
    # Not its own source(): that of bash starts a bash only to ask for its version.
    show(ShellComplete.source(script) + "\n")


def known_types(backend: str | None = None) -> list[str]:
    """The types of the pools of a backend; none when they can't be read, or aren't its own.

    Args:
        backend: What ``--backend`` says.
    """
    url = choose_backend(backend).url
    if is_etcd(url):
        return _types_in_etcd(url)
    if url != LOCAL:
        return []
    from leasectl.state import read_only

    return read_only.pool_types(state_directory())


def _types_in_etcd(url: str) -> list[str]:
    from leasectl.engines.etcd.address import parse_etcd_url
    from leasectl.engines.etcd.claims import pool_types
    from leasectl.engines.etcd.keys import Keys
    from leasectl.engines.etcd.opening import open_gateway
    from leasectl.errors import LeaseError
    from leasectl.system.clock import Clock

    with contextlib.suppress(LeaseError):
        gateway = open_gateway(
            url,
            settings(),
            clock=Clock(),
            deadline_seconds=_ETCD_SECONDS,
            attempt_seconds=_MEMBER_SECONDS,
        )
        return pool_types(gateway, Keys(parse_etcd_url(url).prefix, ""))
    return []


def known_handles(*, released_too: bool) -> list[tuple[str, str]]:
    """Ids and holder identities of handles; none when they can't be read."""
    from leasectl.state import read_only

    return read_only.handle_ids(state_directory(), released_too=released_too)
