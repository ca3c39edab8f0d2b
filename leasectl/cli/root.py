"""The ``leasectl`` command as click has it: its commands, loaded when used, and its help."""

from __future__ import annotations

import importlib
import os

import click

from leasectl import __version__
from leasectl.backends.kinds import KINDS, either
from leasectl.cli.command import command_for_click
from leasectl.cli.described import PlainCommand
from leasectl.cli.groups import CommandGroup
from leasectl.cli.loaded import command_is_loaded
from leasectl.cli.shown.output import show
from leasectl.errors import EXIT_CODES, InvalidRequest, LeaseError
from leasectl.text.suggestions import option_meant

# In the order in which `leasectl --help` shows them. A command's module holds it as `command`.
COMMANDS = (
    "run",
    "once",
    "acquire",
    "release",
    "reacquire",
    "renew",
    "cat",
    "reclaim",
    "use",
    "unuse",
    "marks",
    "answer",
    "status",
    "events",
    "stats",
    "simulate",
    "pool",
    "maintenance",
    "kubernetes",
    "serve",
    "init",
    "doctor",
    "completion",
    "help",
    "version",
)


ENVIRONMENT = (
    (
        "LEASECTL_STATE_DIR",
        "where handles and the embedded pool are kept; default: /tmp/leasectl-<uid>",
    ),
    (
        "LEASECTL_BACKEND",
        f"where leases come from, unless --backend says it: {either(k.example for k in KINDS)}; "
        "none: switches leases off: every request for one succeeds; once, pools and maintenance "
        "need a real backend",
    ),
    ("LEASE_PROXY_SERVER_URL", "the same, if LEASECTL_BACKEND isn't set"),
    ("LEASECTL_SERVE_PID", "process of the server that serve --print-env has started"),
    ("LEASECTL_PRIORITY", "how a request goes before others, unless --priority says it"),
    ("LEASECTL_TOKEN_FILE", "file with a bearer token for the lease proxy"),
    ("LEASECTL_USER_FILE", "file with user:password for etcd"),
    ("LEASECTL_BOSKOS_USERNAME", "user for what stands in front of Boskos and asks for one"),
    ("LEASECTL_BOSKOS_PASSWORD_FILE", "file with that user's password"),
    ("LEASECTL_KUBECONFIG", "which cluster of Kubernetes, and as whom; goes before KUBECONFIG"),
    ("LEASECTL_CA_FILE", "certificates to trust, of https:// or etcds://"),
    ("SSL_CERT_FILE", "the same, if LEASECTL_CA_FILE isn't set"),
    ("LEASECTL_CERT_FILE", "certificate to show there"),
    ("LEASECTL_KEY_FILE", "its key"),
    (
        "LEASECTL_TRUST_ENV",
        "1: heed http_proxy and its like on the way to the lease proxy or Boskos",
    ),
    (
        "LEASECTL_RELEASE_TIMEOUT",
        "how long a release may take at the lease proxy or Boskos (30s; 10s where it isn't there) "
        "and any request at etcd or Kubernetes (10s)",
    ),
    (
        "LEASECTL_KEEP_EVENTS",
        "how old events may be and how many are kept: 30d,100000 unless it says otherwise; 0: none",
    ),
    ("JOB_NAME, BUILD_ID", "who holds, in a CI job; else <user>@<host>"),
    ("SHARED_DIR", "where --scope test lists names, in the file leases"),
    ("LEASECTL_CODE_DIR", "where leasectl.pyz unpacks, instead of /tmp"),
    ("LEASECTL_DEBUG", "1: show where an unexpected failure came from"),
)
# What `run` says to the command that it starts, and `acquire --output env` to a shell.
TOLD = (
    ("LEASECTL_HANDLE", "the path of the handle"),
    ("LEASECTL_NAMES", "the names of what it holds, with commas between them"),
    ("LEASECTL_TYPE", "which of the types it was"),
    ("LEASECTL_FENCE", "a number for each name, larger for whoever holds it later"),
    ("LEASECTL_ONCE", "under once: the handles under which works are under way around it"),
    ("LEASECTL_ATTEMPT", "under run: 1 the first time, 2 for the second of --attempts, and so on"),
)


class LazyGroup(CommandGroup):
    """Imports a command's module only when that command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(f"leasectl.cli.commands.{cmd_name}").command
        command_is_loaded()
        return command_for_click(command) if isinstance(command, PlainCommand) else command

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_paragraph()
        formatter.write_text("Durations are written like 90, 90s, 20m, 1h30m, 1.5h or 1d.")
        with formatter.section("Environment"):
            formatter.write_dl(ENVIRONMENT)
        with formatter.section("Told to the command under run, and by acquire --output env"):
            formatter.write_dl(TOLD)
        with formatter.section("Exit codes"):
            formatter.write_dl(EXIT_CODES)
        with formatter.section("Example"):
            formatter.write_text("leasectl pool create azure--install --count 2")
            formatter.write_text(
                "leasectl run azure--install -w 2h --release-after 20m -- ./install.sh"
            )


def _show_version(ctx: click.Context, _: click.Parameter, is_asked_for: bool) -> None:
    if is_asked_for and not ctx.resilient_parsing:
        show(f"leasectl {__version__}\n")
        ctx.exit()


@click.group(
    name="leasectl",
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "-V",
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and exit.",
)
def command() -> None:
    """Take, hold and give back leases on scarce resources, from CI step scripts.

    A step asks for N resources of a type, waits its turn, and gives them back early, late or
    when it dies. Leases come from the backend named by --backend, LEASECTL_BACKEND or
    LEASE_PROXY_SERVER_URL, else from the embedded pool of this machine, which needs no server.
    """


def run(args: list[str]) -> int:
    """Run a command line.

    Args:
        args: What follows the name of the program.

    Returns:
        Its exit status.

    Raises:
        LeaseError: It failed, or isn't to be understood.
    """
    if "_LEASECTL_COMPLETE" in os.environ:
        from leasectl.cli.completion_scripts import register

        register()
    try:
        result = command.main(args, prog_name="leasectl", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except click.UsageError as error:
        raise InvalidRequest(_text_of(error, args)) from None
    except click.ClickException as error:
        raise LeaseError(error.format_message()) from None
    except click.Abort:
        raise KeyboardInterrupt from None


def _text_of(error: click.UsageError, args: list[str]) -> str:
    """What is wrong with a command line, and where to read how it is right."""
    if isinstance(error, click.NoSuchOption):
        error = _suggesting(error)
    path = error.ctx.command_path if error.ctx else " ".join(["leasectl", *args[:1]])
    message = error.format_message().rstrip(".")
    see = " See" if message.endswith("?") else "; see"
    return f"{message}{see}: {path} --help"


def _suggesting(error: click.NoSuchOption) -> click.UsageError:
    """What is spelled alike may do something else: what does the same comes first."""
    command = error.ctx.command if error.ctx else None
    known = [name for each in command.params for name in each.opts] if command else []
    meant = option_meant(error.option_name, known)
    if meant is None:
        return error
    return click.UsageError(f"{error.message.rstrip('.')}. Did you mean '{meant}'?", error.ctx)
