"""Make click commands of descriptions.

An option that takes one value is given once. What is asked for most, a type or a handle, may stand
without its option. Options are shown in groups.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, get_args

import click

from leasectl.cli.described import (
    Between,
    Group,
    OneOf,
    Param,
    PlainCommand,
)
from leasectl.cli.groups import HelpShown
from leasectl.errors import InvalidRequest
from leasectl.text.durations import NoTime

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_MANY = 9
# Where a context keeps what was given as --backend before the command.
BACKEND = "leasectl.backend"
_OUTPUT_FORM = "output_form"


class Option(click.Option):
    """An option that is shown under a heading.

    Args:
        group: The heading, one of `Group`.
        help: As click has it, or what makes it when help is shown.
    """

    def __init__(
        self,
        names: Sequence[str],
        *,
        group: Group,
        help: str | Callable[[], str] | None = None,
        **kwargs: Any,
    ) -> None:
        self._late_help = help if callable(help) else None
        super().__init__(names, help=None if callable(help) else help, **kwargs)
        self.group = group

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        if self._late_help is not None:
            self.help = self._late_help()
        return super().get_help_record(ctx)

    def type_cast_value(self, ctx: click.Context, value: Any) -> Any:
        try:
            return super().type_cast_value(ctx, value)
        except NoTime as error:
            raise InvalidRequest(f"{self.opts[-1]}: {error}") from None


class Word(click.Argument):
    """An argument that means the same as an option: a POOL, or a handle.

    Args:
        stands_for: Where the option's value goes.
        needed: One of the two has to be given.
    """

    def __init__(self, *args: Any, stands_for: str, needed: bool = False, **kwargs: Any) -> None:
        kwargs["required"] = False  # the option may be given instead
        super().__init__(*args, **kwargs)
        self.stands_for = stands_for
        self.needed = needed

    def get_usage_pieces(self, ctx: click.Context) -> list[str]:
        return []  # the command's `options_metavar` has it, in the right place

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete nothing where the option is given."""
        return [] if was_given(self.stands_for, ctx) else super().shell_complete(ctx, incomplete)

    def settle(self, ctx: click.Context, option: click.Parameter) -> None:
        """Set the option's value, which was given in one of two ways.

        Raises:
            UsageError: It was given in both ways, or in none.
        """
        word, value = ctx.params.pop(str(self.name)), ctx.params[self.stands_for]
        if _is_given(word):
            if _is_given(value):
                raise click.UsageError(
                    f"{self.human_readable_name} is given twice, with {option.opts[0]} and "
                    "without; give it once",
                    ctx,
                )
            ctx.params[self.stands_for] = word
        elif self.needed and not _is_given(value):
            what = "handle" if self.metavar == "H" else "pool"
            raise click.UsageError(f"say which {what}: {ctx.command_path} {self.metavar}", ctx)


def was_given(name: str, ctx: click.Context | None = None) -> bool:
    """Tell whether the command line has an option, and no variable or default set its value."""
    ctx = ctx or click.get_current_context()
    return ctx.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE


def _is_given(value: object) -> bool:
    return value is not None and value != ()


class Command(HelpShown):
    """A command, as the module's story has it. Its help may be what makes it when it is shown."""

    @property
    def help(self) -> str | None:
        return self._help() if callable(self._help) else self._help

    @help.setter
    def help(self, help: str | Callable[[], str] | None) -> None:
        self._help = help

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        is_unclear = args != ["-h"] and any(arg.startswith("-h") for arg in args)
        words = [param for param in self.params if isinstance(param, Word)]
        if is_unclear and any(word.metavar == "H" for word in words):
            raise click.UsageError("-h could be --handle or --help here; write it out", ctx)
        try:
            rest = super().parse_args(ctx, args)
        except click.BadOptionUsage as error:
            error.ctx = error.ctx or ctx  # whose help has that option
            raise
        if ctx.resilient_parsing:
            return rest  # to complete a line, click looks at each for itself
        for word in words:
            option = next(each for each in self.params if each.name == word.stands_for)
            word.settle(ctx, option)
        if ctx.params.pop(_OUTPUT_FORM, None):
            ctx.params["as_json"] = True
        if ctx.params.get("backend", "") is None:
            ctx.params["backend"] = ctx.meta.get(BACKEND)
        return rest

    def make_parser(self, ctx: click.Context) -> Any:
        parser: Any = super().make_parser(ctx)
        parse = parser.parse_args

        def parse_once(args: list[str]) -> tuple[dict[str, Any], list[str], list[click.Parameter]]:
            given = tuple(args)  # which is taken apart
            opts, rest, order = parse(args)
            if len(set(order)) < len(order) and not ctx.resilient_parsing:
                _refuse_repeated(ctx, order, given)
            return opts, rest, order

        # Only here is it known how often each was given: of those that take one value, click
        # keeps the last.
        parser.parse_args = parse_once
        return parser

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, params in self.groups_of_options(ctx):
            with formatter.section(title):
                formatter.write_dl([param.get_help_record(ctx) or ("", "") for param in params])

    def groups_of_options(self, ctx: click.Context) -> list[tuple[str, list[click.Option]]]:
        """The options that help shows, and the headings above them."""
        shown = [
            param
            for param in self.get_params(ctx)
            if isinstance(param, click.Option) and not param.hidden
        ]
        titles = [getattr(param, "group", "Other options") for param in shown]
        if len(shown) <= _MANY or len(set(titles)) == 1:
            return [("Options", shown)]
        groups: dict[str, list[click.Option]] = {title: [] for title in get_args(Group)}
        for title, param in zip(titles, shown):
            groups[title].append(param)
        return [(title, params) for title, params in groups.items() if params]


def _refuse_repeated(
    ctx: click.Context, order: Sequence[click.Parameter], args: Sequence[str]
) -> None:
    for param in order:
        if not isinstance(param, click.Option) or param.multiple or order.count(param) == 1:
            continue
        if not param.is_flag:
            names = " or ".join(param.opts)
            raise click.UsageError(f"{names} is given twice; give it once", ctx)
        if not set(args).isdisjoint(param.opts) and not set(args).isdisjoint(param.secondary_opts):
            names = " and ".join([*param.opts, *param.secondary_opts])
            raise click.UsageError(f"{names} contradict each other; give one of them", ctx)


def new_command(
    cls: type[Command] = Command, **settings: Any
) -> Callable[[Callable[..., Any]], click.Command]:
    """Make a `Command` of a function, as ``click.command`` does, and of what describes it."""
    return lambda function: command_for_click(PlainCommand(function, settings), cls)


def _param(described: Param) -> click.Parameter:
    """Turn a described option or word into click's."""
    settings = dict(described.settings)
    reads = settings.get("type")
    if isinstance(reads, OneOf):
        settings["type"] = click.Choice(reads.words)
    elif isinstance(reads, Between):
        settings["type"] = click.IntRange(*reads)
    if described.is_word:  # each time anew: of click 8.1 an argument forgets its class when used
        kind = Word if "stands_for" in settings else click.Argument
        return kind(described.names, **settings)
    return Option(described.names, **settings)


def command_for_click(plain: PlainCommand, cls: type[Command] = Command) -> click.Command:
    """Make click's command of a description, also of a plain one: for help and completion.

    Its docstring is its help; the examples in it are shown below the options.
    """
    params = list(map(_param, plain.params))
    names = {name for each in params for name in (each.name, *each.opts)}
    if "as_json" in names and "--output" not in names:
        output = ("-o", "--output", _OUTPUT_FORM)
        params.append(Option(output, type=click.Choice(["json"]), group="Output", hidden=True))
    told, begin, example = inspect.cleandoc(plain.function.__doc__ or "").partition("\b\nExample")
    name = plain.function.__name__.removesuffix("_command").rstrip("_")
    settings = {"name": name, "help": told, "epilog": begin + example, **plain.settings}
    return click.command(cls=cls, params=params, **settings)(plain.function)
