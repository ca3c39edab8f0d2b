"""The ``leasectl`` group: all commands, loaded when used."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable, Sequence

import click

from leasectl import __version__
from leasectl.backends.kinds import all_kinds, either
from leasectl.cli.command import BACKEND, command_for_click
from leasectl.cli.described import PlainCommand
from leasectl.cli.groups import TOLD, CommandGroup
from leasectl.cli.loaded import command_is_loaded
from leasectl.cli.rendering.output import show
from leasectl.errors import EXIT_CODES, InvalidRequest, LeaseError
from leasectl.text.wording import nearest, option_meant, printable

# As `leasectl --help` shows them. A command is `command` in the module of its name, or
# NAME_command in a module that `_MODULES` names.
SECTIONS = {
    "Leases and pools": ("run", "acquire", "release", "reacquire", "renew", "cat", "pool"),
    "Coordination": ("once", "reclaim", "use", "unuse", "marks", "answer", "maintenance"),
    "Insight": ("status", "events", "stats", "simulate"),
    "Server": ("serve", "backup", "restore", "kubernetes"),
    "Setup": ("doctor", "init", "completion", "help"),
}
COMMANDS = (*(name for names in SECTIONS.values() for name in names), "version")
_MODULES = {
    "backup": "backup",
    "restore": "backup",
    "use": "marks",
    "unuse": "marks",
    "marks": "marks",
    "answer": "marks",
    "init": "setup",
    "completion": "setup",
    "help": "setup",
    "version": "setup",
}


_ENVIRONMENT = (
    (
        "LEASECTL_STATE_DIR",
        "directory of handles and the embedded pool; default: /tmp/leasectl-<uid>",
    ),
    (
        "LEASECTL_BACKEND",
        "where leases come from, if --backend isn't given: BACKENDS. With "
        "the backend none:, every request for a lease succeeds at once. Default: "
        "LEASE_PROXY_SERVER_URL, else local:",
    ),
    ("LEASE_PROXY_SERVER_URL", "URL of a lease proxy, if LEASECTL_BACKEND isn't set"),
    ("LEASECTL_SERVE_PID", "process id of the server that serve --print-env started"),
    ("LEASECTL_PRIORITY", "priority of requests, if --priority isn't given"),
    ("LEASECTL_TOKEN_FILE", "file with the bearer token for the lease proxy"),
    ("LEASECTL_USER_FILE", "file with user:password for etcd"),
    ("LEASECTL_BOSKOS_USERNAME", "user name, if a proxy in front of Boskos asks for a password"),
    ("LEASECTL_BOSKOS_PASSWORD_FILE", "file with the password of that user"),
    ("LEASECTL_KUBECONFIG", "kubeconfig file; takes precedence over KUBECONFIG"),
    ("LEASECTL_CA_FILE", "certificates to trust for https:// and etcds://"),
    ("SSL_CERT_FILE", "certificates to trust, if LEASECTL_CA_FILE isn't set"),
    ("LEASECTL_CERT_FILE", "client certificate for https:// and etcds://"),
    ("LEASECTL_KEY_FILE", "key of that certificate"),
    (
        "LEASECTL_TRUST_ENV",
        "1: use http_proxy, https_proxy and no_proxy for lease proxies and Boskos",
    ),
    (
        "LEASECTL_RELEASE_TIMEOUT",
        "time limit of a release on a lease proxy or Boskos (default: 30s, or 10s if no server "
        "answers), and of any request to etcd or Kubernetes (default: 10s)",
    ),
    (
        "LEASECTL_KEEP_EVENTS",
        "age and number of the events to keep; default: 30d,100000; 0: keep no events",
    ),
    (
        "JOB_NAME, BUILD_ID",
        "job and build that hold a lease. If unset: the job and build variables of your CI system, "
        "else <user>@<host>",
    ),
    ("SHARED_DIR", "directory with the file `leases`, which lists what --scope test leased"),
    ("LEASECTL_CODE_DIR", "where leasectl.pyz unpacks itself, instead of /tmp/leasectl-<uid>-code"),
    ("LEASECTL_DEBUG", "1: print the traceback of an unexpected failure"),
)


def environment() -> list[tuple[str, str]]:
    """Return the variables that are read, each with its meaning."""
    backends = either(kind.help for kind in all_kinds())
    return [(names, meaning.replace("BACKENDS", backends)) for names, meaning in _ENVIRONMENT]


# What `leasectl help TOPIC` shows.
TOPICS: dict[str, Callable[[], dict[str, Sequence[tuple[str, str]]]]] = {
    "environment": lambda: {
        "Environment": environment(),
        "Set for the command of run, and by acquire --output env": TOLD,
    },
    "exit-codes": lambda: {"Exit codes": EXIT_CODES},
}


class LazyGroup(CommandGroup):
    """Imports a command's module only when that command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(
            f"leasectl.cli.commands.{_MODULES.get(cmd_name, cmd_name)}"
        )
        command = getattr(module, f"{cmd_name}_command" if cmd_name in _MODULES else "command")
        command_is_loaded()
        return command_for_click(command) if isinstance(command, PlainCommand) else command

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, names in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl(
                    [(f"{name:11}", self._summary(ctx, name, formatter.width)) for name in names]
                )
        click.Command.format_options(self, ctx, formatter)

    def _summary(self, ctx: click.Context, name: str, width: int) -> str:
        command = self.get_command(ctx, name)
        assert command is not None
        return command.get_short_help_str(width)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_paragraph()
        formatter.write_text(f"More: leasectl help COMMAND; leasectl help {'|'.join(TOPICS)}")

    def help_of_topic(self, ctx: click.Context, topic: str) -> str:
        """Return the help of one of `TOPICS`."""
        formatter = ctx.make_formatter()
        for title, rows in TOPICS[topic]().items():
            with formatter.section(title):
                formatter.write_dl(rows)
        return formatter.getvalue().rstrip("\n")


def _show_version(ctx: click.Context, _: click.Parameter, is_asked_for: bool) -> None:
    if is_asked_for and not ctx.resilient_parsing:
        show(f"leasectl {__version__}\n")
        ctx.exit()


def _keep_backend(ctx: click.Context, _: click.Parameter, urls: tuple[str, ...]) -> None:
    if len(urls) > 1:
        raise click.UsageError("--backend is given twice; give it once", ctx)
    ctx.meta[BACKEND] = urls[0] if urls else None


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
@click.option("--backend", multiple=True, hidden=True, expose_value=False, callback=_keep_backend)
def command() -> None:
    """Acquire, hold and release leases on scarce resources in CI scripts."""


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
    path = error.ctx.command_path if error.ctx else " ".join(["leasectl", *args[:1]])
    message = _in_our_words(error)
    see = " See" if message.endswith("?") else "; see"
    return f"{message}{see}: {path} --help"


def _in_our_words(error: click.UsageError) -> str:
    """The message of an error, in the style of our own where it is click's."""
    param = getattr(error, "param", None)
    name = "" if param is None else _name_of(param)
    if isinstance(error, click.NoSuchOption):
        return _no_such_option(error)
    if isinstance(error, click.MissingParameter) and param is not None:
        known = param.type.choices if isinstance(param.type, click.Choice) else ()
        return f"{name} is missing" + (f"; choose {either(known)}" if known else "")
    if isinstance(error, click.BadParameter) and param is not None:
        return _invalid(name, error.message, param)
    text = error.format_message().rstrip(".")
    if isinstance(error, click.BadOptionUsage):
        takes = "needs a value" if "requires" in text else "takes no value"
        return f"{error.option_name} {takes}"
    extra = re.search(r"unexpected extra arguments? \((.*)\)$", text, re.DOTALL)
    if extra is None:
        return text
    is_count = extra[1].isdigit() and "--count" in _options_of(error)
    hint = f"; did you mean --count {extra[1]}?" if is_count else ""
    return f'unexpected argument "{printable(extra[1])}"{hint}'


def _name_of(param: click.Parameter) -> str:
    is_option = isinstance(param, click.Option)
    return max(param.opts, key=len) if is_option else param.human_readable_name


def _invalid(name: str, message: str, param: click.Parameter) -> str:
    """What is wrong with a value, which click's message begins with, and what to give instead."""
    message, read_as = message.rstrip(".").replace("'", '"'), param.type
    message = message.replace("valid integer", "whole number")
    value, is_not, _ = message.partition(" is not ")
    if is_not and isinstance(read_as, click.IntRange):
        between = (
            f"of {read_as.min} or more"
            if read_as.max is None
            else (f"from {read_as.min} to {read_as.max}")
        )
        return f"{name} {value}: use a whole number {between}"
    if is_not and isinstance(read_as, click.Choice):
        return f"{name} {value}: choose {either(read_as.choices)}"
    return f"{name}: {message}"


def _options_of(error: click.UsageError) -> list[str]:
    command = error.ctx.command if error.ctx else None
    return [name for each in command.params for name in each.opts] if command else []


def _no_such_option(error: click.NoSuchOption) -> str:
    """What is spelled alike may do something else: what does the same comes first."""
    given, known = error.option_name, _options_of(error)
    text = f"no option {printable(given)}"
    if given[2:3].isdigit() and "--names" in known:
        return f"{text}; a resource is named with: --names {printable(given)}"
    meant = option_meant(given, known) or nearest(given, known)
    return text if meant is None else f"{text}; did you mean {meant}?"
