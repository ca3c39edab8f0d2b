"""Completion scripts for shells.

Beside what click's own scripts do: a value behind ``--option=`` keeps what stands before it,
descriptions may hold commas, and the words of a command under `run` are completed as its own.
"""

from __future__ import annotations

from typing import Any

from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
)

from leasectl.cli.commands.once import words_of_command as words_of_work
from leasectl.cli.commands.run import words_of_command

# An answer is a type and a value. Of type "command" the value is how many words of a command have
# been typed before the one that is to be completed.
_BASH = """\
%(complete_func)s() {
    local IFS=$'\\n' response completion type value
    response=$(env COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD \
%(complete_var)s=bash_complete "$1")
    for completion in $response; do
        IFS=',' read -r type value <<< "$completion"
        case $type in
            dir) COMPREPLY=(); compopt -o dirnames ;;
            file) COMPREPLY=(); compopt -o default ;;
            command) COMPREPLY=(); %(complete_func)s_command "$value" ;;
            plain) COMPREPLY+=("$value") ;;
        esac
    done
    return 0
}

%(complete_func)s_command() {
    local IFS=$' \\t\\n' word=${COMP_WORDS[COMP_CWORD]}
    if declare -F _comp_command_offset > /dev/null; then
        _comp_command_offset $((COMP_CWORD - $1))
    elif declare -F _command_offset > /dev/null; then
        _command_offset $((COMP_CWORD - $1))
    elif [[ $1 == 0 && $word != */* ]]; then
        mapfile -t COMPREPLY < <(compgen -c -- "$word" | sort -u)
    else
        compopt -o default
    fi
}

complete -o nosort -F %(complete_func)s %(prog_name)s
"""

_ZSH = """\
#compdef %(prog_name)s

%(complete_func)s() {
    local -a completions described response
    local type key descr
    (( ! $+commands[%(prog_name)s] )) && return 1

    response=("${(@f)$(env COMP_WORDS="${words[*]}" COMP_CWORD=$((CURRENT-1)) \
%(complete_var)s=zsh_complete %(prog_name)s)}")

    if [[ $response[1] == command ]]; then
        words=("${(@)words[CURRENT-$response[2],-1]}")
        (( CURRENT = $response[2] + 1 ))
        _normal -p %(prog_name)s
        return
    fi
    # What stands before the value stays.
    [[ $PREFIX == --*=* ]] && compset -P '*='
    for type key descr in ${response}; do
        case $type in
            plain)
                if [[ $descr == _ ]]; then
                    completions+=("$key")
                else
                    described+=("$key":"$descr")
                fi ;;
            dir) _path_files -/ ;;
            file) _path_files -f ;;
        esac
    done
    [[ -n $described ]] && _describe -V unsorted described
    [[ -n $completions ]] && compadd -V unsorted -a completions
}

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    %(complete_func)s "$@"
else
    compdef %(complete_func)s %(prog_name)s
fi
"""

_FISH = """\
function %(complete_func)s
    set -l token (commandline -ct)
    # What stands before the value stays.
    set -l before ""
    string match -qr '^--[^=]*=' -- $token
    and set before (string match -r '^--[^=]*=' -- $token)
    set -l response (env %(complete_var)s=fish_complete COMP_WORDS=(commandline -cp) \
COMP_CWORD=$token %(prog_name)s)
    for completion in $response
        set -l answer (string split -m 1 , -- $completion)
        switch $answer[1]
            case dir
                printf '%%s\\n' $before(__fish_complete_directories $answer[2])
            case file
                printf '%%s\\n' $before(__fish_complete_path $answer[2])
            case command
                set -l typed (commandline -opc)
                set -l first (math (count $typed) - $answer[2] + 1)
                set -l words
                test $answer[2] -gt 0
                and set words (string escape -- $typed[$first..-1])
                complete -C (string join ' ' -- $words "$token")
            case plain
                printf '%%s\\n' $before$answer[2]
        end
    end
end

complete --no-files --command %(prog_name)s --arguments "(%(complete_func)s)"
"""


class _WithCommands(ShellComplete):
    """Leaves it to the shell to complete the command under `run` and `once`."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem[Any]]:
        typed = _words_of_command(args)
        if typed is not None:
            return [CompletionItem(str(typed), type="command")]
        return super().get_completions(args, incomplete)


class _Bash(_WithCommands, BashComplete):
    source_template = _BASH

    def get_completion_args(self) -> tuple[list[str], str]:
        args, incomplete = super().get_completion_args()
        # Bash has the "=" of an option as a word of its own, and replaces only what follows it.
        ours = args.index("--") if "--" in args else len(args)
        joined: list[str] = []
        for arg in args[:ours]:
            if _is_option(joined) and (arg == "=" or joined[-1].endswith("=")):
                joined[-1] += arg
            else:
                joined.append(arg)
        if ours == len(args) and _is_option(joined) and joined[-1].endswith("="):
            incomplete = joined.pop() + incomplete
        return joined + args[ours:], incomplete


def _is_option(words: list[str]) -> bool:
    """Whether the last of some words is an option."""
    return bool(words) and words[-1].startswith("--")


class _Zsh(_WithCommands, ZshComplete):
    source_template = _ZSH


class _Fish(_WithCommands, FishComplete):
    source_template = _FISH


def register() -> None:
    """Register these completion scripts with click."""
    for each in (_Bash, _Zsh, _Fish):
        add_completion_class(each)


def _words_of_command(args: list[str]) -> int | None:
    """How many words of the command under `run` or `once` have been typed; None before it."""
    if args[:1] == ["once"]:
        return words_of_work(args[1:])
    if args[:1] != ["run"]:
        return None

    return words_of_command(args[1:])
