# shellcheck shell=bash
# Bash functions for step scripts: leases, and traps that don't overwrite each other.
#
#   source <(leasectl init bash)          or          source "$LEASE_PROXY_CLIENT_SH"
#
#   lease__acquire  -t TYPE [-c COUNT] [--scope=step|test] [--guard] [--ttl=1h] [--priority=N] [--jitter=10m]
#                   [--start-jitter=5m] [--where=K=V]... [--on-reclaim=A] [--wait=D] [--optional]
#                   [--var=NAME] [-q]
#                   -t TYPE -t TYPE ...    one lease, of whichever type is free first
#   lease__release  --handle=H | --names=A,B | --scope=test  [--delay=20m]
#   lease__reacquire --handle=H [--wait=D] [--optional] [--var=NAME]
#   lease__cat      --handle=H [--format=plain|csv] [--pretty-format=csv]
#   lease__property --handle=H KEY         a property of what H holds, one line for each
#   lease__once     KEY [OPTION...] -- CMD [ARG...]
#                                          one process runs CMD, and all get what it printed
#   lease__use      --handle=H --name=N    mark a held resource as in use: no reclaim takes it
#   lease__unuse    --handle=H --name=N    mark it as no longer in use
#   lease__marks    --handle=H [--json]    show what a reclaim asks H to give back
#   lease__answer   --handle=H --ready|--keep [--names=A,B] [--json]
#                                          answer that, and print the names answered for
#   lease__guard    H                      release H when this shell ends, however it ends
#   lease__trap     COMMAND SIGNAL...      add COMMAND to whatever trap is set
#   lease__untrap   COMMAND SIGNAL...      take it out again
#   lease__install_lease_eligible          true if this cluster profile uses install leases and they aren't off
#
# They return 0, 2 (lease__acquire and lease__reacquire: no such type) or 1 (anything else). lease__once
# returns CMD's status, as leasectl once does; lease__use, lease__unuse, lease__marks and lease__answer
# return the status of their command: 77 if a name can't be used, or can't be ready.
# Errors go to stderr, so h=$(lease__acquire ...) never takes an error message for a handle.
#
# A trap may interrupt any of these functions, and then runs inside it. Therefore no function changes
# a shell option or IFS, not even for its own duration, and every local has a name that no script
# uses: the script's handler must find its own variables, and `readonly count` must not stop `local`.
# The exception is -T, where it is set: whoever has RETURN or DEBUG traps in functions wants them in
# those it calls, not in the dozens that these call.
# [ ] compares strings where [[ ]] and case would listen to the script's nocasematch.

# An alias is expanded while a function is read, so none may be active while these are. The shell
# reads a sourced text command by command: this one takes effect before the next is read. What is
# read only when it runs, that is $(...) and traps, begins its commands with a backslash. A function is
# found when it is called, so commands are called by `command` and `builtin`, in case the script has
# functions of their names; except [, :, local, return and shift, without which no script does. It is
# `command` for eval and exec: behind `builtin`, eval heeds -e although its status is asked for, and what
# exec closes is open again afterwards.
if \builtin shopt -q expand_aliases; then _LEASE__ALIASES=(on) && \builtin shopt -u expand_aliases; fi

# ---- traps -------------------------------------------------------------------------------------
#
# Bash runs the EXIT trap however the shell ends, death by an untrapped TERM, INT or HUP included, so
# one layer on EXIT is enough, and a signal that has no handler needs none of ours. The layer runs
# the script's own EXIT trap first, then the commands that were added, each with the same $?.
#
# What could keep the added commands from running, and what is done about it:
#   - the script's EXIT trap calls `exit`: while it runs, `exit` is a function that runs them first;
#   - `return` in it ends the shell there and then, if `exit` was called in a function or a sourced
#     file: if it has that command, and is run from there, they are run before it;
#   - a command in it fails under `set -e`: while it runs, an ERR trap runs them first, also before
#     the script's own, in which a command may fail as well;
#   - TERM, HUP, INT or PIPE arrives while it runs: for that time they have a handler, which runs
#     them and lets the signal end the shell;
#   - the script's TERM handler says `trap - EXIT; exit`, as many do: handlers that were there when
#     the layer was put on are wrapped, and while one runs, `trap` is a function that puts the layer
#     back on;
#   - that handler says `trap - TERM; kill -TERM $$`, and was set before any trap on EXIT was: Bash then
#     gives TERM back what it was before, which is to die of it without the EXIT trap. So while a
#     handler runs, TERM and HUP have one of ours instead of none: it exits, and the signal ends the
#     EXIT trap. For who comes by `builtin trap`, a trap on EXIT is set and taken off at the end of this.
# Beyond reach are, in the script's own handlers: `builtin exit`, `exec`, `kill -9 $$`, ${x:?}, an
# unset variable under `set -u`, a syntax error; in posix mode `exit` and `trap` (a function can't
# stand in for a special builtin there); two signals at the same instant; an ERR trap that ends the
# shell after `trap - EXIT`, or before a command of the EXIT trap fails under `set -e`, as Bash runs
# no ERR trap within one; a plain `trap ... EXIT` that the script sets after lease__trap; and a
# first lease__trap within the EXIT trap, as Bash takes no other then. For those the guard is the
# net: `lease__acquire --scope=step` names the script as the guard of its lease (over a lease proxy
# only with --guard), and the keeper releases when that process is gone.
#
# State, by signal number (EXIT is 0). All of it is in arrays, which `set -a` can't export:
#   _LEASE__OWNER     the process this state is about: a subshell inherits the variables, not the traps,
#                     though a job that is killed right after its fork runs its parent's EXIT trap
#   _LEASE__COMMANDS  what was added: "<number> <command>"
#   _LEASE__EARLIER   the script's own handler, with a last line that succeeds (_lease__trap_body)
#   _LEASE__HANDLED   whether it had one
#   _LEASE__RETURNS   whether the one on EXIT has a `return`
#   _LEASE__ACTIVE    whether the handler runs at the moment
#   _LEASE__STATUS    $? when it began
#   _LEASE__NEXT      which of _LEASE__COMMANDS it runs next
#   _LEASE__STANDS_IN whether the function `trap` is ours
#   _LEASE__BEGINNING whether the EXIT trap hasn't come to the script's own handler yet
#   _LEASE__HELD      the signals that have a trap of ours for as long as a handler runs
#   _LEASE__LATE      the signal that ends the shell when the EXIT trap is through
#   _LEASE__PRINTED   what `trap -p` printed
#   _LEASE__ERR       the script's ERR trap, whether its functions inherit it, and how deep they were

_lease__complain() { # <function> <message>
  builtin printf '%s: %s\n' "$1" "$2" >&2
}

# Adds COMMAND to the traps of the given signals, after what is there already; once, however often it
# is called. COMMAND runs in a function, with the $? that the trap was entered with; what it returns
# changes nothing. On a signal that nothing else handles it runs and then the signal ends the shell,
# as it would have; there a COMMAND that is on EXIT too is left to EXIT. An ignored signal stays so.
lease__trap() { # COMMAND SIGNAL...
  [[ $- != *T* ]] || { local - && builtin set +T; }
  local _lease__numbers=() _lease__number
  _lease__signal_numbers lease__trap "$@" || return 1
  _lease__trap_adopt
  for _lease__number in "${_lease__numbers[@]}"; do
    _lease__trap_add "$_lease__number" "$1"
  done
}

# Takes COMMAND out of the traps of the given signals. When nothing is left, the script's own traps
# are put back as they were.
lease__untrap() { # COMMAND SIGNAL...
  [[ $- != *T* ]] || { local - && builtin set +T; }
  local _lease__numbers=() _lease__number
  _lease__signal_numbers lease__untrap "$@" || return 1
  _lease__trap_adopt
  for _lease__number in "${_lease__numbers[@]}"; do
    _lease__trap_remove "$_lease__number" "$1"
  done
}

# Fills the caller's _lease__numbers.
_lease__signal_numbers() { # <function> COMMAND SIGNAL...
  local _lease__signal _lease__found
  if (($# < 3)) || [ -z "$2" ]; then
    _lease__complain "$1" "usage: $1 COMMAND SIGNAL..."
    return 1
  fi
  for _lease__signal in "${@:3}"; do
    case $_lease__signal in
      # 10# because 08 would be an octal number.
      [0-9] | [0-9][0-9]) _lease__found=$((10#$_lease__signal)) ;;
      [a-zA-Z]*) _lease__found=$(\builtin kill -l "$_lease__signal" 2>/dev/null) || _lease__found='' ;;
      *) _lease__found='' ;;
    esac
    # ERR, DEBUG and RETURN have numbers past the last signal's.
    if [ -z "$_lease__found" ] || ((_lease__found > 64 || _lease__found == 9 || _lease__found == 19)); then
      _lease__complain "$1" "can't trap \"$_lease__signal\"; give EXIT or a signal such as TERM"
      return 1
    fi
    _lease__numbers+=("$_lease__found")
  done
}

# Starts afresh in a process that didn't set the present state.
_lease__trap_adopt() {
  [ "${_LEASE__OWNER-}" = "$BASHPID" ] && return 0
  # A subshell still shows its parent's traps, which won't run in it; any change makes it forget them.
  [ "$$" = "$BASHPID" ] || builtin trap - KILL
  _LEASE__COMMANDS=() _LEASE__EARLIER=() _LEASE__HANDLED=() _LEASE__ACTIVE=()
  _LEASE__STATUS=() _LEASE__NEXT=() _LEASE__ERR=() _LEASE__STANDS_IN=() _LEASE__HELD=()
  _LEASE__PRINTED=() _LEASE__BEGINNING=() _LEASE__LATE=() _LEASE__RETURNS=()
  _LEASE__PENDING=() _LEASE__PID=() _LEASE__GOT=() _LEASE__LINE=() _LEASE__FIFO=()
  _LEASE__OWNER=("$BASHPID")
}

_lease__trap_add() { # <signal number> <command>
  _lease__trap_has "$1" "$2" || _LEASE__COMMANDS+=("$1 $2")
  _lease__trap_arm "$1"
}

_lease__trap_has() { # <signal number> <command>
  local _lease__entry
  for _lease__entry in "${_LEASE__COMMANDS[@]}"; do
    [ "$_lease__entry" = "$1 $2" ] && return 0
  done
  return 1
}

_lease__trap_remove() { # <signal number> <command>
  local _lease__index _lease__left=0
  for _lease__index in "${!_LEASE__COMMANDS[@]}"; do
    # Only emptied: a handler that runs at the moment counts on the places of the others.
    [ "${_LEASE__COMMANDS[_lease__index]}" = "$1 $2" ] && _LEASE__COMMANDS[_lease__index]=''
    [ "${_LEASE__COMMANDS[_lease__index]%% *}" = "$1" ] && _lease__left=1
  done
  # The signal ends the shell again as if it had never had a handler; the others may wait.
  if ((! _lease__left && $1)) && [ -z "${_LEASE__HANDLED[$1]-}" ]; then
    _lease__trap_disarm "$1"
  fi
  _lease__trap_settle
}

# Takes the whole layer off when nothing needs it any more.
_lease__trap_settle() {
  local _lease__item
  for _lease__item in "${_LEASE__COMMANDS[@]}" "${_LEASE__PENDING[@]}"; do
    [ -z "$_lease__item" ] || return 0
  done
  _lease__trap_disarm "${!_LEASE__HANDLED[@]}"
  ((${#_LEASE__ACTIVE[@]})) || _LEASE__COMMANDS=()
}

# Puts the layer on EXIT and on a signal, and wraps the handlers of the signals that usually end a
# script. Without a number: on EXIT only.
_lease__trap_arm() { # [<signal number>]
  local _lease__number _lease__wanted=${1:-0} _lease__handlers=() _lease__body
  # Within the EXIT trap it can't be set any more, and nothing can take it away.
  if ((${_LEASE__ACTIVE[0]-0} && _lease__wanted == 0)); then return 0; fi
  _lease__trap_read 0 1 2 3 15 "$_lease__wanted"
  for _lease__number in 0 1 2 3 15 "$_lease__wanted"; do
    case ${_lease__handlers[_lease__number]-none} in
      # It is ours, also when the script has since wrapped something of its own around it.
      *"_lease__trap_enter $_lease__number;"*) continue ;;
      '')
        # An ignored signal ends nothing. EXIT is none, and has no trap then.
        ((_lease__number == 0)) || continue
        _LEASE__HANDLED[0]=1
        ;;
      none)
        ((_lease__number == 0 || _lease__number == _lease__wanted)) || continue
        _LEASE__HANDLED[_lease__number]=''
        ;;
      *) _LEASE__HANDLED[_lease__number]=1 ;;
    esac
    _LEASE__EARLIER[_lease__number]=${_lease__handlers[_lease__number]-}$'\n\n:'
    ((_lease__number)) || _lease__trap_look_for_return
    _lease__trap_body "$_lease__number"
    # Fails for a signal that was ignored when the shell began; it stays ignored.
    builtin trap -- "$_lease__body" "$_lease__number" || :
  done
}

_lease__trap_look_for_return() {
  local _lease__pattern=$'(^|[;&|({!\n]|then|else|do)[ \t]*return([ \t\n;&|})]|$)'
  _LEASE__RETURNS=()
  [[ ! ${_LEASE__EARLIER[0]} =~ $_lease__pattern ]] || _LEASE__RETURNS=(yes)
}

_lease__trap_disarm() { # <signal number>...
  local _lease__number _lease__handlers=() _lease__body
  _lease__trap_read "$@"
  for _lease__number; do
    # What the script has set since then is its own business, also where ours is a part of it.
    _lease__trap_body "$_lease__number"
    [ "${_lease__handlers[_lease__number]-}" = "$_lease__body" ] || continue
    if [ -n "${_LEASE__HANDLED[_lease__number]-}" ]; then
      builtin trap -- "${_LEASE__EARLIER[_lease__number]%$'\n\n:'}" "$_lease__number"
    else
      builtin trap - "$_lease__number"
    fi
  done
}

# Reads traps into the caller's _lease__handlers. What `trap -p` prints goes back to this shell through
# the pipe (before Bash 5.1: file) of a here-string. That takes an eighth of the time of $(...), and
# it matters: a signal may come between reading the traps and setting them.
_lease__trap_read() { # <signal number>...
  { builtin trap -p "$@" >|/dev/fd/0 && builtin mapfile -d '' -t _LEASE__PRINTED; } 2>/dev/null <<<'' ||
    _LEASE__PRINTED=("$(\builtin trap -p "$@")")
  _lease__trap_parse
}

# Parses _LEASE__PRINTED into the caller's _lease__handlers, by signal number (ERR: 100). Splitting the
# words as Bash itself does gives a handler back exactly, quotes and newlines included.
_lease__trap_parse() {
  local _lease__words=() _lease__index _lease__found
  builtin eval "_lease__words=(${_LEASE__PRINTED[0]-})"
  for ((_lease__index = 0; _lease__index < ${#_lease__words[@]}; _lease__index += 4)); do
    # In posix mode a signal without a handler is printed with `-`.
    [ "${_lease__words[_lease__index + 2]}" != - ] || continue
    case ${_lease__words[_lease__index + 3]#SIG} in
      EXIT) _lease__found=0 ;;
      HUP) _lease__found=1 ;;
      INT) _lease__found=2 ;;
      QUIT) _lease__found=3 ;;
      PIPE) _lease__found=13 ;;
      TERM) _lease__found=15 ;;
      ERR) _lease__found=100 ;;
      *) _lease__found=$(\builtin kill -l "${_lease__words[_lease__index + 3]}") ;;
    esac
    _lease__handlers[_lease__found]=${_lease__words[_lease__index + 2]}
  done
}

# Writes the trap into the caller's _lease__body. The earlier handler is evaluated here and not in a
# function, where "$@", `return` and `declare` would mean something else; in one line, because LINENO
# counts. `if` hands it the right $? without a command that fails, and the last line that was put
# after it keeps `set -e` from taking the status of the whole handler for a failed command.
_lease__trap_body() { # <signal number>
  local _lease__eval="\\builtin eval \"\${_LEASE__EARLIER[$1]-}\""
  _lease__body="if _lease__trap_saw $1 \"\$?\"; "
  if (($1 == 0)); then
    # A function doesn't see its caller's ERR trap, so that one is read and replaced out here, too.
    local _lease__print='\builtin trap -p ERR HUP INT PIPE TERM'
    _lease__body+="{ $_lease__print >|/dev/fd/0 && \\builtin mapfile -d '' -t _LEASE__PRINTED; } 2>/dev/null <<<'' || \
_LEASE__PRINTED=(\"\$($_lease__print)\"); _lease__trap_hold \"\$-\"; \
case \$- in *e*) \\builtin set -E; _lease__err_set ;; esac; \
case \${_LEASE__RETURNS-} in yes) (\\builtin return 0) 2>/dev/null && _lease__trap_return ;; esac; "
  fi
  _lease__body+="_lease__trap_enter $1; then $_lease__eval; else $_lease__eval; fi; _lease__trap_leave $1"
}

_lease__trap_saw() { # <signal number> <status>
  [[ $- != *T* ]] || { local - && builtin set +T; }
  local _lease__nothing
  _LEASE__ACTIVE[$1]=1 _LEASE__STATUS[$1]=$2 _LEASE__NEXT[$1]=0
  [ "${_LEASE__OWNER-}" = "$BASHPID" ] || return 0
  (($1)) || _LEASE__BEGINNING=(yes)
  _lease__trap_stand_in "$1"
  # A handler that ended the shell during `read -t` leaves its timer to go off now, which crashes Bash
  # (seen in 5.2) in the next $(...). Another `read -t` takes its place.
  (($1)) || builtin read -r -t 0.01 _lease__nothing </dev/null || :
}

# While the EXIT trap runs, a signal that would end the shell has to run the added commands first.
_lease__trap_hold() { # <options>
  [[ $- != *T* ]] || { local - && builtin set +T; }
  local _lease__handlers=()
  _lease__trap_parse
  [ "${_LEASE__OWNER-}" != "$BASHPID" ] || _lease__trap_hold_signals
  _LEASE__ERR=("${_lease__handlers[100]-}" "$1" "${#FUNCNAME[@]}")
}

# Takes the caller's _lease__handlers.
_lease__trap_hold_signals() {
  local _lease__number _lease__body
  for _lease__number in 1 2 13 15; do
    [[ ! ${_lease__handlers[_lease__number]+set} ]] || continue
    _LEASE__EARLIER[_lease__number]='' _LEASE__HANDLED[_lease__number]=''
    _lease__trap_body "$_lease__number"
    builtin trap -- "$_lease__body" "$_lease__number" || :
  done
}

# Functions of the script's that have these names are left alone, and posix mode allows none.
_lease__trap_stand_in() { # <signal number>
  [[ -o posix ]] && return 0
  if ! builtin declare -F trap >/dev/null; then
    # shellcheck disable=SC2329,SC2064 # The script's handlers call it; the words are theirs.
    trap() {
      [[ $- != *T* ]] || { local - && builtin set +T; }
      local _lease__code=0
      builtin trap "$@" || _lease__code=$?
      [ "${_LEASE__OWNER-}" != "$BASHPID" ] || _lease__trap_restore
      return "$_lease__code"
    }
    # Not for children, also under `set -a`.
    builtin export -n -f trap
    _LEASE__STANDS_IN=(trap)
  fi
  if (($1 == 0)) && ! builtin declare -F exit >/dev/null; then
    # shellcheck disable=SC2329
    exit() {
      local _lease__code=$?
      [[ $- != *T* ]] || { local - && builtin set +T; }
      [ "${_LEASE__OWNER-}" != "$BASHPID" ] || _lease__trap_exit "${1-}"
      # Alone it means $?, but for the EXIT trap itself.
      _lease__status "$_lease__code" || builtin exit "$@"
      builtin exit "$@"
    }
    builtin export -n -f exit
  fi
}

# Called when one of the script's handlers has changed the traps.
_lease__trap_restore() {
  local _lease__number _lease__handlers=()
  if ((${_LEASE__ACTIVE[0]-0})); then
    _lease__trap_read ERR 1 2 13 15
    _lease__trap_hold_signals
    _lease__err_restore
  else
    _lease__trap_arm
    _lease__trap_read 1 15
    for _lease__number in 1 15; do
      [[ ! ${_lease__handlers[_lease__number]+set} ]] || continue
      _LEASE__HELD[_lease__number]="_lease__trap_die $_lease__number"
      builtin trap -- "${_LEASE__HELD[_lease__number]}" "$_lease__number" || :
    done
  fi
}

# The handler has ended, and the shell hasn't: what has no trap is as it is without us.
_lease__trap_let_go() {
  local _lease__number _lease__handlers=()
  _lease__trap_read "${!_LEASE__HELD[@]}"
  for _lease__number in "${!_LEASE__HELD[@]}"; do
    [ "${_lease__handlers[_lease__number]-}" != "${_LEASE__HELD[_lease__number]}" ] || builtin trap - "$_lease__number"
  done
  _LEASE__HELD=()
}

# A signal that one of the script's handlers has left without a trap.
_lease__trap_die() { # <signal number>
  [[ $- != *T* ]] || { local - && builtin set +T; }
  _LEASE__LATE=("$1")
  builtin exit "$((128 + $1))"
}

# Returns the status that the earlier handler must see as $?.
_lease__trap_enter() { # <signal number>
  [[ $- != *T* ]] || { local - && builtin set +T; }
  local _lease__number
  if (($1 == 0)) && [ "${_LEASE__OWNER-}" = "$BASHPID" ]; then
    # At once, since the script's own trap may take its time; what came of it is seen to afterwards.
    _lease__stop_waiting
    # A handler that ended the shell hasn't come to the commands added after it.
    for _lease__number in "${!_LEASE__ACTIVE[@]}"; do
      ((_lease__number == 0)) || _lease__trap_run "$_lease__number"
    done
    _LEASE__BEGINNING=()
  fi
  return "${_LEASE__STATUS[$1]:-0}"
}

_lease__trap_leave() { # <signal number>
  [[ $- != *T* ]] || { local - && builtin set +T; }
  local _lease__status=${_LEASE__STATUS[$1]:-0}
  if [ "${_LEASE__OWNER-}" = "$BASHPID" ]; then
    (($1)) || _lease__trap_finish
    _lease__trap_run "$1"
    builtin unset "_LEASE__ACTIVE[$1]"
    if ((${#_LEASE__ACTIVE[@]} == 0 && ${#_LEASE__STANDS_IN[@]})); then
      builtin unset -f trap
      _LEASE__STANDS_IN=()
    fi
    ((${#_LEASE__ACTIVE[@]} || ${#_LEASE__HELD[@]} == 0)) || _lease__trap_let_go
  fi
  (($1)) && [ -z "${_LEASE__HANDLED[$1]-}" ] || return 0
  if ((${_LEASE__ACTIVE[0]-0})); then
    if ((${#_LEASE__BEGINNING[@]} == 0 && $1 == 2 && _lease__status != 130)); then
      # While Bash waits for a foreground command, it ignores an INT that doesn't kill that one, too.
      return 0
    fi
    _LEASE__LATE=("$1")
    ((${#_LEASE__BEGINNING[@]})) || _lease__trap_finish
    return 0
  fi
  builtin trap - "$1"
  builtin kill "-$1" "$BASHPID"
}

# What is left to be done in the EXIT trap; then dies of the signal that has come meanwhile.
_lease__trap_finish() {
  _lease__trap_run 0
  if ((${#_LEASE__LATE[@]})); then
    builtin trap - "${_LEASE__LATE[0]}"
    builtin kill "-${_LEASE__LATE[0]}" "$BASHPID"
  fi
}

# A handler of the script's calls `exit` while its EXIT trap runs.
_lease__trap_exit() { # <status>
  # A signal's, before the script's EXIT trap has begun. It would have, had the signal come earlier.
  if ((${#_LEASE__BEGINNING[@]})); then
    _LEASE__BEGINNING=()
    case $1 in
      '' | *[!0-9]*) ;;
      *) _LEASE__STATUS[0]=$1 ;;
    esac
    if _lease__status "${_LEASE__STATUS[0]}"; then command eval "${_LEASE__EARLIER[0]-}"; else command eval "${_LEASE__EARLIER[0]-}"; fi
  fi
  _lease__trap_finish
}

# Runs the added commands that haven't run since the handler was entered. Each is taken before it
# runs, so that a signal handler that interrupts this goes on with the next one.
_lease__trap_run() { # <signal number>
  local _lease__index _lease__entry
  (($1)) || _lease__give_up
  while ((_lease__index = _LEASE__NEXT[$1]++, _lease__index < ${#_LEASE__COMMANDS[@]})); do
    _lease__entry=${_LEASE__COMMANDS[_lease__index]}
    [ "${_lease__entry%% *}" = "$1" ] || continue
    _lease__entry=${_lease__entry#* }
    # Nobody else handles this signal: it will end the shell, and EXIT is next.
    (($1)) && [ -z "${_LEASE__HANDLED[$1]-}" ] && _lease__trap_has 0 "$_lease__entry" && continue
    if _lease__status "${_LEASE__STATUS[$1]:-0}"; then command eval "$_lease__entry"; else command eval "$_lease__entry"; fi || :
  done
}

_lease__status() { # <status>
  return "$1"
}

# Under `set -E`, by which what a function sets is its caller's, too.
_lease__err_set() {
  [[ $- != *T* ]] || { local - && builtin set +T; }
  builtin trap 'if _lease__err_enter "$?"; then :; else \builtin eval "${_LEASE__ERR[3]-}"; fi; _lease__err_leave' ERR
}

# Takes the caller's _lease__handlers. The script may have changed in its EXIT trap what is on ERR.
_lease__err_restore() {
  [[ ${_LEASE__ERR[1]-} == *e* && $- == *E* && ${_lease__handlers[100]-} != *_lease__err_enter* ]] || return 0
  # For the function that has set it. Between that and this are `trap` and _lease__trap_restore.
  _LEASE__ERR[0]=${_lease__handlers[100]-} _LEASE__ERR[2]=$((${#FUNCNAME[@]} - 2))
  _lease__err_set
}

# The script's ERR trap runs where it would have: in functions only if they inherit it. A command in
# it that fails ends the shell without another ERR trap, so what was added runs before.
_lease__err_enter() { # <status>
  [[ $- != *T* ]] || { local - && builtin set +T; }
  _LEASE__ERR[3]=''
  if [[ ${_LEASE__ERR[1]-} == *E* ]] || ((${#FUNCNAME[@]} <= ${_LEASE__ERR[2]-0})); then
    _LEASE__ERR[3]=${_LEASE__ERR[0]-}$'\n\n:'
    _lease__err_leave
  fi
  return "$1"
}

# The script's EXIT trap may end the shell by `return`.
_lease__trap_return() {
  [[ $- != *T* ]] || { local - && builtin set +T; }
  [ "${_LEASE__OWNER-}" != "$BASHPID" ] || _lease__trap_finish
}

_lease__err_leave() {
  [[ $- != *T* ]] || { local - && builtin set +T; }
  [ "${_LEASE__OWNER-}" = "$BASHPID" ] || return 0
  [[ $- != *e* ]] || _lease__trap_finish
}

# ---- leases ------------------------------------------------------------------------------------

# Waits for COUNT leases of TYPE and prints the path of their handle, without a newline.
#   -t, --type=TYPE      required
#   -c, --count=COUNT    default 1; 0: prints nothing; all: the whole pool
#   --scope=step|test    test, the default: the lease outlives the step, and its names are also in
#                        $SHARED_DIR/leases. step: it is released when the script, $$, ends. Not over a
#                        lease proxy: there a later step may release a copy of the handle in $SHARED_DIR
#   --guard              with --scope=step: release it when the script ends over a lease proxy, too
#   --ttl=D              the lease is over when nobody has renewed it for D; in scope step it is renewed
#                        as long as the script lives. Pools in etcd need it in scope test
#   -w, --wait=D         wait at most D for the lease, and then fail; 0: don't wait. Without it there is no limit
#   --optional           return 0 where no lease can be had, with an empty handle, which the other functions ignore
#   --var=NAME           assign the handle to NAME instead of printing it. Bash runs no trap while it
#                        waits for $(...), but does while it waits here: TERM and INT end the script
#                        at once, and nothing is leased
#   -q, --quiet          say nothing while waiting, nor that this is a dry run
#   --store=true|false   older form: prints the names with commas between them. true: scope test.
#                        false: nothing but lease__release --names will release them
# All other options are those of `leasectl acquire`: --where, --priority, --jitter, --on-reclaim, …
lease__acquire() {
  [[ $- != *T* ]] || { local - && builtin set +T; }
  local _lease__types=() _lease__count=1 _lease__scope=test _lease__var='' _lease__store='' _lease__guard=''
  local _lease__option _lease__value _lease__words _lease__arguments=() _lease__got='' _lease__quiet=''
  local _lease__optional=()
  while (($#)); do
    _lease__read_option lease__acquire ' -t --type -c --count --scope --var --store ' "$@" || return 1
    shift "$_lease__words"
    case $_lease__option in
      -q | --quiet) _lease__quiet=yes ;;
      --guard) _lease__guard=guard ;;
      --optional) _lease__optional=(--optional) ;;
      -t | --type) _lease__types+=("--type=$_lease__value") ;;
      -c | --count) _lease__count=$_lease__value ;;
      --scope) _lease__scope=$_lease__value ;;
      --var) _lease__check_variable lease__acquire "$_lease__value" && _lease__var=$_lease__value || return 1 ;;
      --store) _lease__store=$_lease__value ;;
      *) _lease__arguments+=("$_lease__option") ;;
    esac
  done
  _lease__check_acquire || return 1
  # As many as none.
  if [ -n "$_lease__count" ] && [ -z "${_lease__count//0/}" ]; then
    _lease__deliver lease__acquire
    return "$?"
  fi
  if _lease__dry_run; then
    # Without this, a step that lost the variable on its way would seem to hold leases.
    [ -n "$_lease__quiet" ] || _lease__complain lease__acquire \
      'dry run: no lease is taken, because neither LEASE_PROXY_SERVER_URL nor LEASECTL_BACKEND is set; to use the pools of this machine: export LEASECTL_BACKEND=local:'
    _lease__got='LEASE_PROXY_SERVER_URL-not-set-dry-run-mode'
    _lease__deliver lease__acquire
    return "$?"
  fi
  # Of the older form, --store=false outlives the script, too.
  [ "$_lease__store" != false ] || _lease__scope=step
  _lease__arguments+=("${_lease__types[@]}" "--count=$_lease__count" "--scope=$_lease__scope" "${_lease__optional[@]}")
  # --step-pid is a guard, too, but over a lease proxy only of the wait.
  [ "$_lease__scope$_lease__store" != step ] || _lease__arguments+=("--${_lease__guard:-step}-pid=$$")
  [ -z "$_lease__quiet" ] || _lease__arguments+=(--quiet)
  _lease__obtain lease__acquire acquire "${_lease__arguments[@]}"
}

# Releases what a handle still holds and waits for the same again, under the same handle, which it
# prints as lease__acquire does. --wait and --optional are as there; with --optional the handle is printed also
# where it holds nothing now.
lease__reacquire() { # --handle=H [--wait=D] [--optional] [--var=NAME]
  [[ $- != *T* ]] || { local - && builtin set +T; }
  local _lease__handle='' _lease__var='' _lease__store='' _lease__option _lease__value _lease__words _lease__got=''
  local _lease__arguments=() _lease__optional=()
  while (($#)); do
    _lease__read_option lease__reacquire ' --handle --var ' "$@" || return 1
    shift "$_lease__words"
    case $_lease__option in
      --handle) _lease__handle=$_lease__value ;;
      --var) _lease__check_variable lease__reacquire "$_lease__value" && _lease__var=$_lease__value || return 1 ;;
      --optional) _lease__optional=(--optional) ;;
      *) _lease__arguments+=("$_lease__option") ;;
    esac
  done
  if [ -z "$_lease__handle" ]; then
    _lease__complain lease__reacquire '--handle=H is required, with what lease__acquire printed'
    return 1
  fi
  if _lease__dry_run; then
    _lease__got=$_lease__handle
    _lease__deliver lease__reacquire
    return "$?"
  fi
  _lease__obtain lease__reacquire reacquire "${_lease__arguments[@]}" "--handle=$_lease__handle" "${_lease__optional[@]}"
}

# Gives back and prints "A,B released"; what was released already is no error and prints nothing.
#   --handle=H           what a handle holds. An empty one, or one that is gone: nothing to do
#   -n, --names=A,B      these, if this job took them (also --name=A)
#   --scope=test         all that $SHARED_DIR/leases lists
#   --delay=D            release after D; returns at once, the keeper releases. 18m-22m: after a random time in that range
lease__release() {
  [[ $- != *T* ]] || { local - && builtin set +T; }
  local _lease__handle='' _lease__what=() _lease__more=() _lease__option _lease__value
  local _lease__words _lease__cli=() _lease__out='' _lease__code=0
  while (($#)); do
    _lease__read_option lease__release ' -n --names --name --handle --scope --delay ' "$@" || return 1
    shift "$_lease__words"
    case $_lease__option in
      -n | --names | --name) _lease__what+=("--names=$_lease__value") ;;
      --handle) _lease__handle=$_lease__value _lease__what+=("--handle=$_lease__value") ;;
      --scope) _lease__what+=("--scope=$_lease__value") ;;
      --delay) _lease__more+=("--delay=$_lease__value" --detach) ;;
      *) _lease__more+=("$_lease__option") ;;
    esac
  done
  if ((${#_lease__what[@]} != 1)) || [ "${_lease__what[0]}" = --names= ]; then
    _lease__complain lease__release 'say what to release, by one of --handle=H, --names=A,B and --scope=test'
    return 1
  fi
  [ "${_lease__what[0]}" != --handle= ] || return 0
  if _lease__dry_run; then
    builtin printf 'LEASE_PROXY_SERVER_URL not set, dry run mode: it would release %s\n' "${_lease__what[0]#--}"
    return "$?"
  fi
  _lease__find_cli lease__release || return 1
  _lease__out=$(\command "${_lease__cli[@]}" release "${_lease__what[@]}" "${_lease__more[@]}" </dev/null) || _lease__code=$?
  [ -z "$_lease__out" ] || builtin printf '%s released\n' "${_lease__out//$'\n'/,}"
  # 66: there is no such handle. If there is such a file, though, it holds names that don't exist.
  ((_lease__code == 66)) && [ -n "$_lease__handle" ] && [ ! -e "$_lease__handle" ] && _lease__code=0
  ((_lease__code == 0))
}

# Older form of lease__release --scope=test.
lease__release_stored() {
  [[ $- != *T* ]] || { local - && builtin set +T; }
  lease__release --scope=test
}

# Prints the names that a handle holds: one a line, or with commas between them; without a newline at
# the end, unless it is --pretty-format that asks.
lease__cat() { # --handle=H [--format=plain|csv] [--pretty-format=csv]
  [[ $- != *T* ]] || { local - && builtin set +T; }
  local _lease__handle='' _lease__format=plain _lease__end='' _lease__option _lease__value _lease__words
  local _lease__answer=''
  while (($#)); do
    _lease__read_option lease__cat ' --handle --format --pretty-format ' "$@" || return 1
    shift "$_lease__words"
    case $_lease__option in
      --handle) _lease__handle=$_lease__value ;;
      --format) _lease__format=$_lease__value ;;
      --pretty-format) _lease__format=$_lease__value _lease__end=$'\n' ;;
      *) _lease__refuse_option lease__cat "$_lease__option" || return 1 ;;
    esac
  done
  case $_lease__format in
    plain | csv) ;;
    *)
      _lease__complain lease__cat "format \"$_lease__format\" is neither plain nor csv"
      return 1
      ;;
  esac
  [ -f "$_lease__handle" ] || {
    _lease__may_look "$_lease__handle"
    return "$?"
  }
  _lease__read_names "$_lease__handle" || return 1
  [ "$_lease__format" = csv ] || _lease__answer=${_lease__answer//,/$'\n'}
  [ -z "$_lease__answer" ] || builtin printf '%s%s' "$_lease__answer" "$_lease__end"
}

# Complains where a handle may be there and isn't ours to see, so that it isn't taken for a released one.
_lease__may_look() { # <handle>
  local _lease__folder=$1
  while [ "$_lease__folder" != "${_lease__folder%/*}" ]; do
    _lease__folder=${_lease__folder%/*}
    [ ! -d "$_lease__folder" ] || break
  done
  [ ! -d "$_lease__folder" ] || [ -x "$_lease__folder" ] || {
    _lease__complain lease__cat "can't tell whether $1 exists: no permission to enter $_lease__folder"
    return 1
  }
}

# Reads the names that a handle holds into the caller's _lease__answer, with commas between them. No
# cat(1) and no leasectl: it also works where there is neither, and for a handle that was copied.
_lease__read_names() { # <handle>
  local _lease__names=()
  builtin mapfile -t _lease__names 2>/dev/null <"$1" || {
    _lease__complain lease__cat "can't read $1"
    return 1
  }
  _lease__answer=''
  ((${#_lease__names[@]})) || return 0
  builtin printf -v _lease__answer %s, "${_lease__names[@]}"
  # Not a range of characters, which the locale orders.
  case $_lease__answer in
    *[!ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:,-]*)
      _lease__answer=''
      builtin printf -v _lease__answer %q "$1"
      _lease__complain lease__cat "$_lease__answer is not a handle: it contains something other than resource names"
      return 1
      ;;
  esac
  _lease__answer=${_lease__answer%,}
}

# Prints a property of each resource that a handle holds, one a line, without a newline at the end.
# Fails if one hasn't got it.
lease__property() { # --handle=H KEY
  [[ $- != *T* ]] || { local - && builtin set +T; }
  local _lease__handle='' _lease__key=() _lease__option _lease__value _lease__words _lease__cli=() _lease__out=''
  while (($#)); do
    _lease__read_option lease__property ' --handle ' "$@" || return 1
    shift "$_lease__words"
    case $_lease__option in
      --handle) _lease__handle=$_lease__value ;;
      -*) _lease__refuse_option lease__property "$_lease__option" || return 1 ;;
      *) _lease__key+=("$_lease__option") ;;
    esac
  done
  if [ -z "$_lease__handle" ] || ((${#_lease__key[@]} != 1)); then
    _lease__complain lease__property 'usage: lease__property --handle=H KEY'
    return 1
  fi
  if _lease__dry_run; then
    _lease__complain lease__property "dry run: nothing is leased, so nothing has a ${_lease__key[0]}"
    return 1
  fi
  _lease__find_cli lease__property || return 1
  _lease__out=$(\command "${_lease__cli[@]}" cat "--handle=$_lease__handle" "--property=${_lease__key[0]}" </dev/null) || return 1
  builtin printf %s "$_lease__out"
}

# True if this cluster profile uses install leases and INSTALL_LEASE_ENABLED isn't false.
lease__install_lease_eligible() {
  [[ $- != *T* ]] || { local - && builtin set +T; }
  local _lease__profile=${CLUSTER_PROFILE_SET_NAME-} _lease__enabled=${INSTALL_LEASE_ENABLED-true}
  case $_lease__enabled in
    '' | 0 | [nN][oO] | [fF][aA][lL][sS][eE]) return 1 ;;
  esac
  # Not [[ ]], which would ignore case if the script does.
  [ "$_lease__profile" != "${_lease__profile#openshift-org-?}" ]
}

# Has one process do some work, and all who ask for it use what it printed, as leasectl once has it.
# A command, and no function of the script's: that may run anywhere else.
lease__once() { # KEY [OPTION...] -- CMD [ARG...]
  [[ $- != *T* ]] || { local - && builtin set +T; }
  local _lease__cli=()
  _lease__find_cli lease__once || return 1
  \command "${_lease__cli[@]}" once "$@"
}

# The holder's side of a reclaim. A dry run holds nothing that could be asked for.
lease__use() { # --handle=H --name=NAME
  [[ $- != *T* ]] || { local - && builtin set +T; }
  _lease__reclaim lease__use "$@"
}

lease__unuse() { # --handle=H --name=NAME
  [[ $- != *T* ]] || { local - && builtin set +T; }
  _lease__reclaim lease__unuse "$@"
}

lease__marks() { # --handle=H [--json]
  [[ $- != *T* ]] || { local - && builtin set +T; }
  _lease__reclaim lease__marks "$@"
}

lease__answer() { # --handle=H --ready|--keep [--names=A,B] [--json]
  [[ $- != *T* ]] || { local - && builtin set +T; }
  _lease__reclaim lease__answer "$@"
}

_lease__reclaim() { # <function> <word>...
  local _lease__function=$1 _lease__what=() _lease__cli=() _lease__is_empty=''
  local _lease__option _lease__value _lease__words
  shift
  while (($#)); do
    _lease__read_option "$_lease__function" ' --handle ' "$@" || return 1
    _lease__what+=("${@:1:_lease__words}")
    shift "$_lease__words"
    # What an optional lease has for a handle when there was none.
    [ "$_lease__option$_lease__value" != --handle ] || _lease__is_empty=yes
  done
  [ -z "$_lease__is_empty" ] || return 0
  if _lease__dry_run; then return 0; fi
  _lease__find_cli "$_lease__function" || return 1
  \command "${_lease__cli[@]}" "${_lease__function#lease__}" "${_lease__what[@]}" </dev/null
}

# Releases H when this shell ends, however it ends.
lease__guard() { # H
  [[ $- != *T* ]] || { local - && builtin set +T; }
  local _lease__quoted
  if (($# != 1)); then
    _lease__complain lease__guard 'usage: lease__guard HANDLE'
    return 1
  fi
  # What an optional lease has for a handle when there was none.
  [ -n "$1" ] || return 0
  builtin printf -v _lease__quoted %q "$1"
  lease__trap "_lease__guard_release $_lease__quoted" EXIT
}

_lease__guard_release() { # <handle>
  _lease__dry_run || _lease__release_soon "$1"
}

# A script that is being aborted has little time: it must not hang on a server that doesn't answer.
# timeout(1) also makes a process group, so that a second Ctrl-C doesn't interrupt the release.
_lease__release_soon() { # <handle>
  local _lease__cli=() _lease__out='' _lease__limit=${LEASECTL_RELEASE_TIMEOUT-}
  _lease__find_cli lease__guard || return 1
  if builtin type -P timeout >/dev/null; then
    _lease__cli=(timeout -k 5 35 "${_lease__cli[@]}")
  fi
  _lease__out=$(LEASECTL_RELEASE_TIMEOUT=$_lease__limit \command "${_lease__cli[@]}" release "--handle=$1" </dev/null) || return 1
  # In a subshell: it alone dies of PIPE where nobody reads stderr any more.
  [ -z "$_lease__out" ] || (builtin printf '%s released\n' "${_lease__out//$'\n'/,}" >&2) || :
}

_lease__dry_run() {
  [ -z "${LEASE_PROXY_SERVER_URL-}" ] && [ -z "${LEASECTL_BACKEND-}" ] && [ -z "${_LEASE__EMBEDDED-}" ]
}

# Reads a word into the caller's _lease__option, and the value of an option that needs one, behind a "="
# or in the next word, into its _lease__value; into its _lease__words, how many words that took. All
# other words are for leasectl, which knows them or refuses them.
_lease__read_option() { # <function> <options with a value, a space around each> <word>...
  _lease__option=$3 _lease__value='' _lease__words=1
  case ${3%%=*} in
    *[!a-z-]*) return 0 ;;
  esac
  case $2 in
    *" ${3%%=*} "*) ;;
    *) return 0 ;;
  esac
  _lease__option=${3%%=*} _lease__value=${3#*=}
  [ "$_lease__option" = "$3" ] || return 0
  _lease__value=${4-} _lease__words=2
  (($# > 3)) && return 0
  _lease__complain "$1" "$_lease__option needs a value"
  return 1
}

_lease__refuse_option() { # <function> <word>
  local _lease__quoted
  builtin printf -v _lease__quoted %q "$2"
  _lease__complain "$1" "unknown option $_lease__quoted"
  return 1
}

_lease__check_variable() { # <function> <name>
  case $2 in
    '' | [!a-zA-Z_]* | *[!a-zA-Z0-9_]* | _lease__* | _LEASE__*)
      _lease__complain "$1" "--var: \"$2\" can't be the name of a variable"
      return 1
      ;;
  esac
}

# Checks what the function itself reads of lease__acquire's options. A dry run, too, has to be told.
_lease__check_acquire() {
  if ((${#_lease__types[@]} == 0)); then
    _lease__complain lease__acquire '--type=TYPE is required'
    return 1
  fi
  if [ "$_lease__scope" != step ] && [ "$_lease__scope" != test ]; then
    _lease__complain lease__acquire "scope \"$_lease__scope\" is neither step nor test"
    return 1
  fi
  if [ -n "$_lease__guard" ] && [ "$_lease__scope$_lease__store" != step ]; then
    _lease__complain lease__acquire '--guard goes with --scope=step; scope test outlives the script'
    return 1
  fi
  if [ -n "$_lease__store" ] && [ "$_lease__store" != true ] && [ "$_lease__store" != false ]; then
    _lease__complain lease__acquire "store \"$_lease__store\" is neither true nor false"
    return 1
  fi
}

# Fills the caller's _lease__cli.
_lease__find_cli() { # <function>
  if builtin type -P leasectl >/dev/null; then
    _lease__cli=(leasectl)
  elif [ ! -f "${_LEASE__PYZ-}" ]; then
    _lease__complain "$1" 'found neither leasectl on PATH nor leasectl.pyz beside the sourced file; install one of them'
    return 1
  elif builtin type -P python3 >/dev/null; then
    _lease__cli=(python3 "$_LEASE__PYZ")
  else
    _lease__complain "$1" 'needs python3, which is not on PATH'
    return 1
  fi
}

# Waiting for a lease.
#
# Bash runs no trap while it waits for a foreground command or $(...), but it does while a builtin reads.
# So leasectl runs as a grandchild, which the script's $!, `jobs` and `wait` know nothing of, and
# writes into a pipe that a builtin waits at. When the script ends meanwhile, the layer on EXIT gives up:
# leasectl is told to stop, and what it had already answered is given back. If the script is killed,
# leasectl sees that nobody reads its pipe any more.
#
# State of the waits in this process (a trap may begin another), by the descriptor that is read:
#   _LEASE__PENDING   that there is one: the descriptor to write to, as long as this process has that, or -
#   _LEASE__PID       the process id of leasectl
#   _LEASE__GOT       the handle, until the script has it
#   _LEASE__LINE      the line that was read last
#   _LEASE__FIFO      the path of the pipe, while it has one

# Runs leasectl for a handle, and assigns that to the caller's _lease__var or prints it.
_lease__obtain() { # <function> <leasectl argument>...
  local _lease__cli=() _lease__code=0 _lease__reader=''
  _lease__find_cli "$1" || {
    ((${#_lease__optional[@]})) || return 1
    _lease__complain "$1" 'continuing without a lease, because it is optional'
    _lease__deliver "$1"
    return "$?"
  }
  _lease__trap_adopt
  _lease__wait_for "${@:2}" || _lease__code=$?
  if ((_lease__code == 0)); then
    _lease__deliver "$1" || _lease__code=1
  fi
  if ((_lease__code)) && [ -n "$_lease__got" ]; then
    _lease__release_soon "$_lease__got" || :
  fi
  [ -z "$_lease__reader" ] || _lease__forget
  ((${#_LEASE__PENDING[@]})) || _lease__trap_remove 2 _lease__interrupted
  case $_lease__code in
    0) ;;
    66) return 2 ;;
    *) return 1 ;;
  esac
}

_lease__deliver() { # <function>
  local _lease__answer=$_lease__got
  if [ -n "$_lease__store" ] && [ -f "$_lease__got" ]; then
    _lease__read_names "$_lease__got" || return 1
  fi
  if [ -n "$_lease__var" ]; then
    builtin printf -v "$_lease__var" %s "$_lease__answer" && return 0
    _lease__complain "$1" "can't assign to $_lease__var"
  else
    builtin printf %s "$_lease__answer" && return 0
    _lease__complain "$1" "can't write to stdout"
  fi
  return 1
}

# Sets the caller's _lease__got, and its _lease__reader to a descriptor to close. Returns leasectl's
# exit code.
_lease__wait_for() { # <leasectl argument>...
  local _lease__writer='' _lease__begun=''
  # Before anything is forked: while Bash waits for a foreground command, it ignores an INT that has no
  # handler and doesn't kill that command.
  _lease__trap_add 2 _lease__interrupted
  if ! _lease__open_pipe; then
    # Nowhere to make a pipe, or no descriptors: this can't be interrupted, but it works.
    _lease__got=$(\command "${_lease__cli[@]}" "$@" </dev/null)
    return "$?"
  fi
  case $- in
    # With job control ( ) is a process group of its own, which a terminal's Ctrl-C doesn't reach. But a
    # trap that runs while Bash parses $( ) confuses its parser.
    *m*) : "$(\_lease__start_leasectl "$@")" ;;
    *) (_lease__start_leasectl "$@") ;;
  esac
  command exec {_lease__writer}>&-
  _LEASE__PENDING[_lease__reader]=-
  while :; do
    _LEASE__LINE=()
    if [ "$BASHPID" = "$$" ]; then
      # Not `read`, which would listen to IFS, or leave the line in a variable that isn't ours.
      builtin mapfile -t -n 1 -u "$_lease__reader" _LEASE__LINE
    elif _lease__read_line 1; then
      _LEASE__LINE=("$_lease__begun") _lease__begun=''
    elif (($? > 128)); then
      # The second is over, perhaps in the middle of a line. Only the subshell itself sees that its script died.
      _lease__script_is_gone && break
      continue
    fi
    ((${#_LEASE__LINE[@]})) || break
    if ! _lease__hear; then
      _lease__got=${_LEASE__GOT[_lease__reader]-}
      return "${_LEASE__LINE[0]#*code }"
    fi
  done
  # leasectl is gone without a word, or the script is.
  _lease__give_up
  _lease__reader=''
  return 1
}

# The script's traps are not for what this starts; its DEBUG trap might write into the pipe, and so
# might the trace of `set -x` with BASH_XTRACEFD=1.
_lease__start_leasectl() { # <leasectl argument>...
  local _lease__handlers=()
  _lease__trap_read 2
  builtin trap - DEBUG ERR RETURN
  builtin set +x
  _lease__call_leasectl "$@" >&"$_lease__writer" {_lease__writer}>&- {_lease__reader}<&- </dev/null &
}

# Runs in the background, where Bash ignores INT: leasectl must not, unless the script does. (Before Bash
# 5.3, `exec` alone undid that.) Takes the caller's _lease__handlers. The tabs tell its lines from
# leasectl's, even if the first bytes are lost (_lease__give_up).
_lease__call_leasectl() { # <leasectl argument>...
  local _lease__code=0
  # The process id is printed before the process becomes leasectl: later it could end up in leasectl's line.
  {
    [ -z "${_lease__handlers[2]-heeded}" ] || builtin trap - INT
    builtin printf '\t\t\tpid %s\n' "$BASHPID" 2>/dev/null && command exec "${_lease__cli[@]}" "$@"
  } &
  builtin wait "$!" || _lease__code=$?
  # Once the script was killed, nothing reads this.
  builtin printf '\t\t\tcode %s\n' "$_lease__code" 2>/dev/null || :
}

# Opens both ends into the caller's _lease__reader and _lease__writer.
_lease__open_pipe() {
  local _lease__folder _lease__both='' _lease__opened=''
  for _lease__folder in "${TMPDIR:-/tmp}" /tmp /dev/shm; do
    _LEASE__FIFO=("$_lease__folder/leasectl-$BASHPID-$RANDOM$RANDOM")
    # Fails if that exists, whatever it is.
    command mkfifo -m 600 -- "${_LEASE__FIFO[0]}" 2>/dev/null || continue
    # Opening one end waits for the other, opening both doesn't. There may be too few descriptors.
    {
      command exec {_lease__both}<>"${_LEASE__FIFO[0]}" &&
        command exec {_lease__reader}<"${_LEASE__FIFO[0]}" &&
        command exec {_lease__writer}>"${_LEASE__FIFO[0]}" &&
        _LEASE__PENDING[_lease__reader]=$_lease__writer && _lease__opened=yes
    } 2>/dev/null || :
    [ -z "$_lease__both" ] || command exec {_lease__both}>&-
    command rm -f -- "${_LEASE__FIFO[0]}"
    break
  done
  _LEASE__FIFO=()
  [ -z "$_lease__opened" ] || return 0
  [ -z "$_lease__reader" ] || command exec {_lease__reader}<&-
  _lease__reader=''
  return 1
}

# Adds the rest of a line to the caller's _lease__begun; above 128 when no character came for so long. -N ignores
# IFS, and a script may have made REPLY readonly.
_lease__read_line() { # <seconds>
  local _lease__character
  while :; do
    builtin read -r -N 1 -t "$1" -u "$_lease__reader" _lease__character || return "$?" # a bare one means another status in a trap
    [ "$_lease__character" != $'\n' ] || return 0
    _lease__begun+=$_lease__character
  done
}

_lease__script_is_gone() {
  local _lease__stat=() _lease__state
  [ -e "/proc/$$/stat" ] || return 0
  # There may be too few descriptors to look.
  builtin mapfile -t -n 1 _lease__stat 2>/dev/null <"/proc/$$/stat" || return 1
  _lease__state=${_lease__stat[0]-}
  _lease__state=${_lease__state##*) }
  [ "${_lease__state%% *}" = Z ]
}

# Tells every leasectl that this process waits for to stop.
_lease__stop_waiting() {
  local _lease__reader _lease__writer
  # What was read last may not have been taken in yet.
  for _lease__reader in "${!_LEASE__PENDING[@]}"; do
    ((${#_LEASE__LINE[@]} == 0)) || _lease__hear || :
    _lease__writer=${_LEASE__PENDING[_lease__reader]}
    # Or the pipe would have no end.
    [ "$_lease__writer" = - ] || command exec {_lease__writer}>&-
    _LEASE__PENDING[_lease__reader]=-
  done
  _LEASE__LINE=()
  for _lease__reader in "${!_LEASE__PENDING[@]}"; do
    # It may have begun only now.
    [ -n "${_LEASE__PID[_lease__reader]-}" ] || _lease__listen 0.2 || :
    [ -n "${_LEASE__PID[_lease__reader]-}" ] || continue
    # It ignores what the script ignored when it began, and heeds one signal of two.
    builtin kill -TERM "${_LEASE__PID[_lease__reader]}" 2>/dev/null || :
    builtin kill -INT "${_LEASE__PID[_lease__reader]}" 2>/dev/null || :
  done
}

# Ends all waits of this process, and gives back what came of them. The signal may have come when the
# first byte of a line was read, or some more, and those are lost; but for leasectl the last part of
# a handle's path will do.
_lease__give_up() {
  local _lease__reader _lease__handle
  ((${#_LEASE__FIFO[@]} == 0)) || command rm -f -- "${_LEASE__FIFO[0]}"
  _lease__stop_waiting
  for _lease__reader in "${!_LEASE__PENDING[@]}"; do
    while _lease__listen 5; do
      :
    done
    _lease__handle=${_LEASE__GOT[_lease__reader]-}
    [ -z "$_lease__handle" ] || _lease__release_soon "${_lease__handle##*/}" || :
    _lease__forget
  done
}

# An INT ends a script or a subshell, and the EXIT trap gives up. But an interactive shell lives on,
# without returning to what it was doing.
_lease__interrupted() {
  [[ $- == *i* && $BASHPID == "$$" ]] || return 0
  _lease__give_up
  _lease__trap_remove 2 _lease__interrupted
}

_lease__listen() { # <seconds>
  local _lease__begun=''
  _lease__read_line "$1" || return 1
  _LEASE__LINE=("$_lease__begun")
  _lease__hear
}

# Takes in the line that was read from the caller's _lease__reader; false at the last one, which is the
# exit code.
_lease__hear() {
  case ${_LEASE__LINE[0]} in
    *$'\tpid '*) _LEASE__PID[_lease__reader]=${_LEASE__LINE[0]#*pid } ;;
    *$'\tcode '*) return 1 ;;
    *) _LEASE__GOT[_lease__reader]=${_LEASE__LINE[0]} ;;
  esac
}

# Ends the wait at the caller's _lease__reader.
_lease__forget() {
  builtin unset "_LEASE__PENDING[_lease__reader]" "_LEASE__PID[_lease__reader]" "_LEASE__GOT[_lease__reader]"
  command exec {_lease__reader}<&-
}

# leasectl.pyz beside this file, if there is one; exported, since a child that inherits the functions
# doesn't know where they are from. Absolute, so that it isn't looked for elsewhere after a `cd`. A
# text that was given to eval has no place of its own.
case ${BASH_SOURCE[0]-} in
  /*) _LEASE__PYZ=${BASH_SOURCE[0]%/*}/leasectl.pyz ;;
  */*) _LEASE__PYZ=$PWD/${BASH_SOURCE[0]%/*}/leasectl.pyz ;;
  ?*) _LEASE__PYZ=$PWD/leasectl.pyz ;;
  *) _LEASE__PYZ='' ;;
esac
if [[ -f $_LEASE__PYZ ]]; then builtin export _LEASE__PYZ; else builtin unset _LEASE__PYZ; fi

# `leasectl init bash` prints this file with a line more, the first command, which sets _LEASE__INIT: its user means the commands'
# backend, which is the embedded pool unless the environment says another. Without that line, this file is the one
# that CI mounts, and a step without a server makes a dry run. An array isn't exported, so no parent's is taken
# for this file's; _LEASE__EMBEDDED goes with the exported functions.
if [[ ${_LEASE__INIT[0]-} ]]; then builtin export _LEASE__EMBEDDED=yes; else builtin unset _LEASE__EMBEDDED; fi
builtin unset _LEASE__INIT

# A child needs the functions that these call, too.
builtin export -f _lease__complain lease__trap lease__untrap \
  _lease__signal_numbers _lease__trap_adopt _lease__trap_add \
  _lease__trap_has _lease__trap_remove _lease__trap_settle \
  _lease__trap_arm _lease__trap_disarm _lease__trap_read \
  _lease__trap_parse _lease__trap_body _lease__trap_saw \
  _lease__trap_hold _lease__trap_hold_signals _lease__trap_stand_in \
  _lease__trap_restore _lease__trap_let_go _lease__trap_die _lease__trap_enter _lease__trap_leave \
  _lease__trap_finish _lease__trap_exit _lease__trap_run \
  _lease__status _lease__err_set _lease__err_restore _lease__err_enter _lease__err_leave \
  _lease__trap_return _lease__trap_look_for_return \
  lease__acquire lease__reacquire lease__release \
  lease__release_stored lease__cat lease__property _lease__may_look _lease__read_names \
  lease__once lease__use lease__unuse lease__marks lease__answer _lease__reclaim \
  lease__install_lease_eligible lease__guard _lease__guard_release \
  _lease__release_soon _lease__dry_run _lease__read_option \
  _lease__refuse_option _lease__check_variable _lease__check_acquire _lease__find_cli _lease__obtain \
  _lease__deliver _lease__wait_for _lease__start_leasectl _lease__call_leasectl \
  _lease__open_pipe _lease__read_line _lease__script_is_gone _lease__stop_waiting \
  _lease__give_up _lease__interrupted _lease__listen _lease__hear \
  _lease__forget

if [[ ! $(\builtin trap -p EXIT) ]]; then builtin trap : EXIT && builtin trap - EXIT; fi

if [[ ${_LEASE__ALIASES-} ]]; then builtin unset _LEASE__ALIASES && builtin shopt -s expand_aliases; fi
