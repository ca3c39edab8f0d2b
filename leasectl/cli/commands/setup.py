"""``leasectl init|completion|help|version``."""

from __future__ import annotations

import pkgutil

import click

from leasectl import __version__
from leasectl.backends.kinds import all_kinds, either
from leasectl.cli import options
from leasectl.cli.command import new_command
from leasectl.cli.described import word
from leasectl.cli.rendering.output import emit, show, show_json
from leasectl.cli.root import TOPICS, LazyGroup
from leasectl.errors import CorruptState, InvalidRequest
from leasectl.text.wording import nearest, printable

# Behind the comment that names the shell. No child inherits an array.
_INIT_LINE = "_LEASE__INIT=(yes)\n"


@new_command()
@word("shell", "[bash]")
def init_command(*, shell: str) -> None:
    """Print Bash functions to source, such as lease__acquire.

    lease__acquire, lease__release, lease__reacquire and lease__cat work like the commands, and use
    the same backend. lease__guard, lease__trap and lease__untrap add cleanup to the traps that a
    script already has. If no variable names a backend, these functions use the embedded pool,
    while those from $LEASE_PROXY_CLIENT_SH (OpenShift CI) do a dry run.

    \b
    Example:
      source <(leasectl init bash)
      h=$(lease__acquire --type=azure--install --scope=step)
      lease__guard "$h"
    """
    try:
        # Through the loader: the package may be in an archive.
        data = pkgutil.get_data("leasectl.shell", f"leasectl.{shell}")
    except OSError as error:
        raise CorruptState(f"leasectl.{shell}: {error.strerror}; reinstall leasectl") from None
    head, _, functions = (data or b"").decode().partition("\n")
    emit(f"{head}\n{_INIT_LINE}{functions}")


_COMPLETION_EXAMPLE = """\b
Examples:
  source <(leasectl completion bash)
  leasectl completion fish
"""


def _completion_help() -> str:
    asked = either(kind.title for kind in all_kinds() if kind.remote and kind.has_pools)
    return f"""\
Print the completion script of a shell.

It completes commands, options, pools, resources, handles and the keys of once. Pools and resources
come from the embedded pool, or from {asked} if the server answers within a second. To install
it, put one line into the start file of your shell:

\b
  bash  ~/.bashrc                    source <(leasectl completion bash)
  zsh   ~/.zshrc, after compinit     source <(leasectl completion zsh)
  fish  ~/.config/fish/config.fish   leasectl completion fish | source
"""


@new_command(help=_completion_help, epilog=_COMPLETION_EXAMPLE)
@word("shell", "[bash|zsh|fish]")
def completion_command(*, shell: str) -> None:
    """Print the script, as `_completion_help` tells."""
    from click.shell_completion import ShellComplete, get_completion_class

    from leasectl.cli.completion_scripts import register

    register()
    found = get_completion_class(shell)
    assert found is not None
    root = click.get_current_context().find_root().command
    script = found(root, {}, "leasectl", "_LEASECTL_COMPLETE")
    # Not its own source(): that of bash starts a bash only to ask for its version.
    show(ShellComplete.source(script) + "\n")


def _complete_path(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    group = None if ctx.parent is None else ctx.parent.command
    path = ctx.params.get("path") or ()
    for name in path:
        group = group.get_command(ctx, name) if isinstance(group, click.Group) else None
    names = group.list_commands(ctx) if isinstance(group, click.Group) else []
    topics = () if path else TOPICS
    return [each for each in (*names, *topics) if each.startswith(incomplete)]


@new_command(options_metavar="[COMMAND]... | environment | exit-codes")
@word("path", "", shell_complete=_complete_path, nargs=-1)
@click.pass_context
def help_command(ctx: click.Context, *, path: tuple[str, ...]) -> None:
    """Show the help of a command or a topic.

    Topics: environment, the variables that leasectl reads and sets; exit-codes.

    \b
    Examples:
      leasectl help run
      leasectl help pool create
      leasectl help exit-codes
    """
    assert ctx.parent is not None
    found = ctx.parent
    assert isinstance(found.command, LazyGroup)
    if len(path) == 1 and path[0] in TOPICS:
        show(f"{found.command.help_of_topic(found, path[0])}\n")
        return
    meant = nearest(path[0], [*found.command.list_commands(found), *TOPICS]) if path else None
    if len(path) == 1 and path[0] != meant and meant in TOPICS:
        raise InvalidRequest(f'no topic "{printable(path[0])}"; try: leasectl help {meant}')
    for name in path:
        group = found.command
        if not isinstance(group, click.Group):
            raise InvalidRequest(f"{found.command_path} has no commands; see: leasectl help")
        _, each, _ = group.resolve_command(found, [name])
        assert each is not None
        found = each.context_class(each, info_name=name, parent=found, **each.context_settings)
    show(f"{found.get_help()}\n")


@new_command()
@options.json_output
def version_command(*, as_json: bool) -> None:
    """Print the version.

    \b
    Example:
      leasectl version
    """
    if as_json:
        show_json({"version": __version__})
    else:
        show(f"leasectl {__version__}\n")
