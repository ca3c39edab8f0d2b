#!/usr/bin/env bats
# What lease__trap adds to a script, and that it changes nothing else. Most tests run a script twice,
# with the layer and without, and compare everything that can be seen from outside.

# shellcheck disable=SC2016 # what stands in single quotes is for the scripts to expand

bats_require_minimum_version 1.11.0

setup() {
  load helper
  use_own_state
  export LOG=$BATS_TEST_TMPDIR/log ADDED=$BATS_TEST_TMPDIR/added
}

# Runs ./script as it is and with ADD_ON=, says what differs, and checks that what was added has run
# once. Scripts write to $LOG; what they add writes to $ADDED.
assert_only_added() { # [<option for bash>...]
  local with without
  : >"$ADDED"
  : >"$LOG"
  with=$(ADD_ON=yes report_end bash "$@" script argument 2>errors) && with+=$'\nlog: '$(<"$LOG")
  : >"$LOG"
  without=$(ADD_ON='' report_end bash "$@" script argument 2>errors.without) && without+=$'\nlog: '$(<"$LOG")
  assert_equal "$with" "$without"
  assert_equal "added $(line_count "$ADDED") times" 'added 1 times'
}

# Makes ./script: the handler, then the addition, then the body.
script_with() { # <handler> <body>
  printf '%s\n' "add() { [[ ! \$ADD_ON ]] || lease__trap 'printf \"%s\\n\" \"\$?\" >>\"\$ADDED\"' \"\${1:-EXIT}\"; }" \
    '[[ ! $ADD_ON ]] || source "$FUNCTIONS"' "$1" "$2" >script
}

# ---- the matrix ----

one_of_the_matrix() { # <handler> <body, with ENDING in it> <ending>
  script_with "$1" "${2/ENDING/$3}"
  assert_only_added
  assert_only_added -e -u -o pipefail
  assert_only_added -e -u -E -T
}

declare -A endings=(
  ['exit 3']='exit 3'
  ['a failing command']='false'
  ['an unset variable']='printf "%s\n" "$unset_variable"'
  ['its last line']=':'
  ['TERM']='kill -TERM $$; sleep 5'
  ['INT']='kill -INT $$; sleep 5'
)
declare -A handlers=(
  ['no trap']=''
  ['a trap with quotes and newlines']=$'trap \'printf "it\'\\\'\'s  \\"quoted\\"\\n" >>"$LOG"
printf "%s\\n" "second  line: $1" >>"$LOG" # comment\' EXIT'
  ['a trap that uses the status']='trap '\''printf "status %s\n" "$?" >>"$LOG"'\'' EXIT'
  ['a trap that exits with 5']='cleanup() { printf "cleanup %s\n" "$?" >>"$LOG"; if true; then exit 5; fi; }; trap cleanup EXIT'
  ['a trap that waits for jobs']='{ sleep 0.05; printf "job\n" >>"$LOG"; } & trap '\''wait; printf "waited\n" >>"$LOG"'\'' EXIT'
)
declare -A bodies=(
  ['at top level']='add
ENDING
printf "after\n"'
  ['in a function']='work() { local inner=1; add; ENDING
printf "after %s\n" "$inner"; }
work argument
printf "end\n"'
  ['sourced and added twice']='add; [[ ! $ADD_ON ]] || source "$FUNCTIONS"; add
ENDING
printf "after\n"'
)
# Each ending with each handler at top level, and in one of the other two places; on request in all.
other_places=('in a function' 'sourced and added twice')
number=0
for ending in "${!endings[@]}"; do
  for handler in "${!handlers[@]}"; do
    number=$((number + 1))
    places=('at top level' "${other_places[number % 2]}")
    [[ ! ${LEASECTL_TEST_FULL_SIZE-} ]] || places=("${!bodies[@]}")
    for place in "${places[@]}"; do
      bats_test_function --description "ended by $ending, with $handler, $place" -- \
        one_of_the_matrix "${handlers[$handler]}" "${bodies[$place]}" "${endings[$ending]}"
    done
  done
done

# ---- the script's own handlers ----

@test "a trap whose command fails under set -e still ends there, and the added command runs" {
  script_with 'trap '\''printf "one\n" >>"$LOG"; false; printf "two\n" >>"$LOG"'\'' EXIT' 'add; exit 3'
  assert_only_added -e
  script_with 'cleanup() { printf "one\n" >>"$LOG"; false; printf "two\n" >>"$LOG"; }; trap cleanup EXIT' 'add; exit 3'
  assert_only_added -e -u
  assert_only_added -e -u -E
}

@test "a trap that ends with a condition that doesn't hold changes nothing under set -e" {
  script_with 'trap '\''[[ $LOG == nothing ]] && printf "one\n" >>"$LOG"'\'' EXIT' 'add; printf "body\n"'
  assert_only_added -e -u -o pipefail
}

@test "exit without a status in a trap keeps the script's" {
  script_with 'cleanup() { false || :; exit; }; trap cleanup EXIT' 'add; exit 3'
  assert_only_added
  assert_only_added -e -u -o pipefail
}

@test "a trap that returns, where it may and where it can't" {
  local handler body
  for handler in 'return 7' 'if true; then return; fi' 'true && { return 5; }'; do
    for body in 'work() { exit 3; }; work' 'printf "exit 3\n" >more; source ./more' 'exit 3'; do
      script_with "trap 'printf \"trap \$?\\n\"; $handler; printf \"after\\n\"' EXIT" "add; $body"
      assert_only_added
    done
  done
}

@test "exit alone in a subshell of a trap ends it with the status of its last command" {
  script_with 'trap '\''(false || exit) || printf "%s\n" "$?" >>"$LOG"; (exit) || printf "%s\n" "$?" >>"$LOG"'\'' EXIT' 'add; exit 3'
  assert_only_added
  assert_only_added -e -u -o pipefail
}

@test "exit in a subshell of a trap ends only the subshell" {
  script_with 'trap '\''(exit 4) || printf "%s\n" "$?" >>"$LOG"; x=$(printf y; exit 3) || printf "%s %s\n" "$x" "$?" >>"$LOG"'\'' EXIT' 'add; exit 3'
  assert_only_added -e -u -o pipefail
}

@test "an ERR trap runs in the EXIT trap where it did before" {
  script_with 'trap '\''printf "err %s\n" "$?" >>"$LOG"'\'' ERR; cleanup() { false || :; ! true; false; }; trap cleanup EXIT' 'add; exit 3'
  assert_only_added -e
  assert_only_added -e -E
  script_with 'trap '\''printf "err %s\n" "$?" >>"$LOG"'\'' ERR; trap "false; false" EXIT' 'add; exit 3'
  assert_only_added
  assert_only_added -e
}

@test "a command of the ERR trap that fails, too, while the EXIT trap runs" {
  script_with 'trap '\''printf "err\n" >>"$LOG"; false; printf "not reached\n" >>"$LOG"'\'' ERR; trap "false" EXIT' 'add; exit 3'
  assert_only_added -e
  assert_only_added -e -E
}

@test "an EXIT trap that changes the ERR trap and then fails" {
  script_with 'c() { trap - ERR EXIT INT TERM; printf "one\n" >>"$LOG"; false; printf "two\n" >>"$LOG"; }; trap c EXIT' 'add; exit 3'
  assert_only_added -e -u -o pipefail
  assert_only_added -e -E -T
  script_with 'trap '\''printf "err\n" >>"$LOG"'\'' ERR; trap '\''trap - ERR; false'\'' EXIT' 'add; exit 3'
  assert_only_added -e
  script_with 'f() { false; }; c() { trap '\''printf "err %s\n" "$LINENO" >>"$LOG"'\'' ERR; $1; }; trap '\''c "$COMMAND"'\'' EXIT' 'add; exit 3'
  COMMAND=f assert_only_added -e
  COMMAND=false assert_only_added -e
  COMMAND=f assert_only_added -e -E
}

@test "trap '' EXIT takes the EXIT trap off, and ignores nothing" {
  script_with "trap '' EXIT" 'add; exit 3'
  assert_only_added -e -u -o pipefail
  script_with 'c() { trap "" EXIT TERM INT; printf "term\n" >>"$LOG"; exit 7; }; trap c TERM; trap "printf \"exit\n\" >>\"\$LOG\"" EXIT' 'add; kill -TERM $$; exit 3'
  assert_only_added -e -u -o pipefail
}

@test "handlers that take the EXIT trap off and exit, as many do" {
  local signal
  script_with 'cleanup() { local s=$?; trap - EXIT TERM INT HUP; printf "%s\n" "$s" >>"$LOG"; exit "$s"; }; trap cleanup EXIT TERM INT HUP' 'add; kill -"$SIGNAL" $$; exit 3'
  for signal in TERM INT HUP 0; do
    SIGNAL=$signal assert_only_added -e -u -o pipefail
  done
}

@test "handlers that take all traps off and kill the script by the same signal" {
  local signal
  script_with 'trap '\''printf "exit\n" >>"$LOG"'\'' EXIT; cleanup() { trap - EXIT "$1"; printf "%s\n" "$1" >>"$LOG"; kill -"$1" $$; }; for s in TERM INT HUP; do trap "cleanup $s" $s; done' 'add; kill -"$SIGNAL" $$; exit 3'
  for signal in TERM INT HUP 0; do
    SIGNAL=$signal assert_only_added -e -u -o pipefail
  done
}

# Bash alone runs no EXIT trap then, not even the script's.
@test "handlers that were there before any trap on EXIT, and kill the script by the same signal" {
  local signal kill handler body
  for signal in TERM HUP; do
    kill="kill -$signal \$\$"
    for handler in "trap 'trap - $signal; $kill' $signal" \
      "c() { trap - $signal EXIT; $kill; }; trap c $signal EXIT" \
      "c() { trap - EXIT $signal; $kill; }; trap c EXIT $signal" \
      "trap 'trap - $signal; $kill' $signal; trap 'true' EXIT"; do
      for body in "$kill; sleep 5" "sleep 5 >/dev/null 2>&1 & $kill; wait" "{ sleep 0.2; $kill; } & while sleep 0.05; do :; done"; do
        script_with "$handler" "add; $body"
        : >"$ADDED"
        ADD_ON=yes run report_end bash -e -u script
        assert_output "signal $signal"
        assert_equal "$handler: $(line_count "$ADDED")" "$handler: 1"
      done
    done
  done
}

@test "a handler that takes its trap off and lets the script survive" {
  script_with 'c() { trap - TERM; printf "survived\n" >>"$LOG"; }; trap c TERM' 'add; kill -TERM $$; trap -p TERM HUP; printf "on\n"; exit 3'
  assert_only_added
  assert_only_added -e -u -o pipefail
  # It doesn't wait for a command, as it doesn't without the layer: that one outlasts report_end.
  script_with 'trap : EXIT; c() { trap - TERM; }; trap c TERM; [[ ! -e began ]] || { kill "$(<began)"; rm began; }' 'add; kill -TERM $$
{ until [[ -e began ]]; do sleep 0.05; done; kill -TERM $$; } >/dev/null 2>&1 &
bash -c "echo \$\$ >began.new; mv began.new began; exec sleep 600" >/dev/null 2>&1; exit 3'
  assert_only_added
  ADD_ON=yes run report_end bash script
  assert_output 'signal TERM'
  kill "$(<began)"
}

@test "handlers that take the EXIT trap off and then fail" {
  script_with 'trap '\''trap - EXIT; printf "term\n" >>"$LOG"; false; printf "not reached\n" >>"$LOG"'\'' TERM' 'add; kill -TERM $$; exit 3'
  assert_only_added -e
}

@test "handlers that set another EXIT trap" {
  script_with 'trap '\''printf "old\n" >>"$LOG"'\'' EXIT; trap '\''trap "printf \"new\n\" >>\"\$LOG\"" EXIT; exit 7'\'' TERM' 'add; kill -TERM $$; exit 3'
  assert_only_added
}

@test "a handler that lets the script survive the signal" {
  script_with 'trap '\''printf "got it %s\n" "$?" >>"$LOG"'\'' TERM INT' 'add; (exit 6) || kill -TERM $$; kill -INT $$; printf "on\n"; trap "exit 9" TERM; kill -TERM $$'
  assert_only_added
}

@test "an ignored signal stays ignored" {
  script_with "trap '' TERM INT" 'add; add TERM; kill -TERM $$; kill -INT $$; bash -c "trap -p TERM INT"; printf "on\n"; exit 3'
  assert_only_added
}

@test "arguments, line number and the last command are the script's in its trap" {
  script_with 'trap '\''printf "%s|" "$#" "$1" "$LINENO" "$BASH_COMMAND" >>"$LOG"; set -- a b; declare x=1; printf "%s\n" "$#$x" >>"$LOG"'\'' EXIT' 'add; exit 3'
  assert_only_added
}

@test "no function of the layer's stays behind after a handler" {
  script_with 'trap '\''printf "got it\n" >>"$LOG"'\'' TERM' 'add; kill -TERM $$; declare -F trap exit; type -t trap exit'
  assert_only_added
}

@test "no child of a handler has functions named exit and trap, also with set -a" {
  local signal
  for signal in EXIT TERM; do
    script_with "trap 'bash -c \"type -t trap exit\" >>\"\$LOG\"' $signal" 'add; kill -TERM $$'
    assert_only_added -a
  done
}

@test "a script's own function named exit or trap is left alone" {
  script_with 'exit() { printf "own exit\n" >>"$LOG"; builtin exit "$@"; }; trap() { builtin trap "$@"; }; trap "printf \"%s\n\" one >>\"\$LOG\"" EXIT' 'add; kill -0 $$; exit 3'
  assert_only_added
}

@test "a handler that outlives the timeout of the read it interrupted doesn't crash Bash" {
  script_with 'trap '\''sleep 3.5; exit 7'\'' TERM; trap "printf \"%s\n\" one >>\"\$LOG\"" EXIT; mkfifo pipe 2>/dev/null' 'add; { sleep 0.05; kill -TERM $$; } & read -r -t 3 <>pipe; exit 3'
  assert_only_added
}

@test "in posix mode" {
  local ending
  for ending in 'exit 3' 'kill -TERM $$' 'kill -INT $$' 'false' ':'; do
    script_with 'trap "printf \"it'\''s %s\\n\" \"\$?\" >>\"\$LOG\"" EXIT' "add; $ending"
    assert_only_added --posix
    assert_only_added --posix -e -u
    script_with '' "add; $ending"
    assert_only_added --posix
  done
}

# ---- signals while the EXIT trap runs ----

@test "TERM while the EXIT trap runs: what was added runs, then the script dies of it" {
  local signal
  for signal in TERM HUP PIPE; do
    script <<SCRIPT
trap 'printf "in\n"; kill -$signal \$\$; printf "not reached\n"' EXIT
lease__trap 'printf "added\n"' EXIT
lease__trap 'printf "and this\n"' EXIT
exit 3
SCRIPT
    run report_end bash script
    assert_output $'in\nadded\nand this\nsignal '"$signal"
  done
}

@test "INT while the EXIT trap waits for a foreground command is ignored, as without the layer" {
  script_with 'trap '\''rm -f began sent; { until [[ -e began ]]; do sleep 0.02; done; kill -INT $$; : >sent; } & bash -c ": >began; until [[ -e sent ]]; do sleep 0.02; done"; printf "on\n" >>"$LOG"'\'' EXIT' 'add; exit 3'
  assert_only_added
}

@test "INT while the EXIT trap waits for a job ends it, and what was added runs" {
  script_with 'trap '\''(sleep 0.1; kill -INT $$) & sleep 5 & wait; printf "not reached\n" >>"$LOG"'\'' EXIT' 'add; exit 3'
  assert_only_added
}

@test "nobody reads any more what the EXIT trap prints: what was added runs" {
  local nobody='exec > >(:); wait $!'
  script_with 'trap '\''printf "log\n" >>"$LOG"; printf "output\n"; printf "not reached\n" >>"$LOG"'\'' EXIT' "add; $nobody; exit 3"
  assert_only_added
  assert_only_added -e -u -o pipefail
  script_with 'trap '\''printf "output\n"'\'' EXIT' "add; $nobody; printf 'output\n'; exit 3"
  assert_only_added
}

@test "nobody reads any more what an added command prints: the others still run" {
  script <<'SCRIPT'
lease__trap 'printf "one\n"' EXIT
lease__trap 'printf "two\n" >"$ADDED"' EXIT
exec > >(:)
wait "$!"
exit 3
SCRIPT
  run report_end bash script
  assert_output --partial 'signal PIPE'
  assert_equal "$(<"$ADDED")" two
}

@test "TERM while an added command runs: the others still run, each once" {
  script <<'SCRIPT'
lease__trap 'printf "one\n"; kill -TERM $$; printf "still one\n"' EXIT
lease__trap 'printf "two\n"' EXIT
exit 3
SCRIPT
  run report_end bash script
  assert_output $'one\ntwo\nsignal TERM'
}

# ---- what is added ----

@test "added commands run in order, each with the script's status, and can't change it" {
  script -e <<'SCRIPT'
trap 'printf "earlier %s\n" "$?"' EXIT
lease__trap 'printf "one %s\n" "$?"; false; printf "on\n"' EXIT
lease__trap 'printf "it'\''s two %s\n" "$?"
printf "second  line\n"' EXIT
lease__trap 'printf "one %s\n" "$?"; false; printf "on\n"' EXIT
exit 3
SCRIPT
  run report_end bash script
  assert_output $'earlier 3\none 3\non\nit\'s two 3\nsecond  line\nexit 3'
}

@test "an added command that exits doesn't keep the others from running" {
  script <<'SCRIPT'
lease__trap 'exit 7' EXIT
lease__trap 'printf "two\n"' EXIT
exit 3
SCRIPT
  run report_end bash script
  assert_output $'two\nexit 7'
}

@test "a command added while the EXIT trap runs runs, too" {
  script <<'SCRIPT'
trap 'lease__trap "printf \"late\n\"" EXIT' EXIT
lease__trap 'printf "one\n"' EXIT
SCRIPT
  run report_end bash script
  assert_output $'one\nlate\nexit 0'
}

@test "on a signal without a handler, the added command runs and the signal ends the script" {
  local signal
  for signal in TERM INT HUP USR1; do
    script -e -u <<SCRIPT
trap 'printf "exit trap\n"' EXIT
lease__trap 'printf "$signal\n"' $signal
kill -$signal \$\$
printf "not reached\n"
SCRIPT
    run report_end bash script
    assert_output "$signal"$'\nexit trap\nsignal '"$signal"
  done
}

@test "on a signal with a handler, the added command runs after it, each time" {
  script <<'SCRIPT'
trap 'printf "own\n"' TERM
lease__trap 'printf "added\n"' SIGTERM
kill -TERM $$
kill -TERM $$
printf "on\n"
SCRIPT
  run report_end bash script
  assert_output $'own\nadded\nown\nadded\non\nexit 0'
}

@test "on a signal whose handler exits, the added command still runs" {
  script <<'SCRIPT'
trap 'printf "own\n"; exit 7' 15
lease__trap 'printf "added\n"' term
kill -TERM $$
SCRIPT
  run report_end bash script
  assert_output $'own\nadded\nexit 7'
}

@test "a command on EXIT and on signals runs once when a signal ends the script" {
  script <<'SCRIPT'
lease__trap 'printf "added\n"' EXIT TERM INT
kill -INT $$
SCRIPT
  run report_end bash script
  assert_output $'added\nsignal INT'
}

@test "after a plain trap replaced the layer, adding the same again puts it back on" {
  script <<'SCRIPT'
lease__trap 'printf "added\n"' EXIT
trap 'printf "later\n"' EXIT
lease__trap 'printf "added\n"' EXIT
SCRIPT
  run report_end bash script
  assert_output $'later\nadded\nexit 0'
}

# ---- taking it out ----

@test "lease__untrap takes one command out and leaves the others" {
  script <<'SCRIPT'
lease__trap 'printf "one\n"' EXIT
lease__trap 'printf "two\n"' EXIT
lease__untrap 'printf "one\n"' EXIT
lease__untrap 'printf "never added\n"' EXIT
SCRIPT
  run report_end bash script
  assert_output $'two\nexit 0'
}

@test "when nothing is left, the traps are byte for byte what they were" {
  local options
  for options in +e '-e -u' '-o posix'; do
    # shellcheck disable=SC2086 # several words
    script $options <<'SCRIPT'
trap 'printf "it'\''s
  \"two\" lines \\ $? `x`\n" # comment' EXIT
trap 'a  b' TERM
trap '' HUP
trap -p >before
lease__trap 'printf one' EXIT INT TERM USR1
trap -p >between
lease__untrap 'printf one' EXIT INT TERM USR1
trap -p >after
trap - EXIT TERM
SCRIPT
    run report_end bash script
    assert_output 'exit 0'
    run cmp before after
    assert_success
    run ! cmp -s before between
  done
}

@test "when nothing is left, trap '' EXIT is what it was, too" {
  script <<<"trap '' EXIT; lease__trap 'printf one' EXIT; lease__untrap 'printf one' EXIT; trap -p"
  run report_end bash script
  assert_output $'trap -- \'\' EXIT\nexit 0'
}

@test "taken out of a signal, the signal ends the script at once again" {
  script <<'SCRIPT'
lease__trap 'printf "exit\n"' EXIT
lease__trap 'printf "term\n"' TERM
lease__untrap 'printf "term\n"' TERM
trap -p TERM
(sleep 0.1; kill -TERM $$) & sleep 60 >/dev/null 2>&1
SCRIPT
  local -i since=$SECONDS
  run report_end bash script
  assert_output $'exit\nsignal TERM'
  ((SECONDS - since < 30))
}

@test "a trap that the script set after the layer is left alone when the layer goes" {
  script <<'SCRIPT'
lease__trap 'printf "one\n"' EXIT
trap 'printf "later\n"' EXIT
lease__untrap 'printf "one\n"' EXIT
SCRIPT
  run report_end bash script
  assert_output $'later\nexit 0'
}

@test "what the script has appended to its trap since stays when the layer goes" {
  script <<'SCRIPT'
trap 'printf "own\n"' EXIT
lease__trap 'printf "one\n"' EXIT
eval "words=($(trap -p EXIT))"
trap "${words[2]}; printf 'appended\n'" EXIT
lease__untrap 'printf "one\n"' EXIT
SCRIPT
  run report_end bash script
  assert_output $'own\nappended\nexit 0'
}

# ---- subshells, children, bad input ----

@test "a subshell has a layer of its own and doesn't run its parent's" {
  script -e -u <<'SCRIPT'
trap 'printf "earlier\n"' EXIT
lease__trap 'printf "parent\n"' EXIT
(printf "in a subshell\n")
(lease__trap 'printf "child\n"' EXIT; exit 0)
text=$(lease__trap 'printf "captured\n"' EXIT)
printf '%s\n' "$text"
{ lease__trap 'printf "job\n"' EXIT; } &
wait
SCRIPT
  run report_end bash script
  assert_output $'in a subshell\nchild\ncaptured\njob\nearlier\nparent\nexit 0'
}

@test "a job that is killed right after its fork doesn't run what its parent added" {
  script <<'SCRIPT'
lease__trap 'printf "added\n"' EXIT
for ((i = 0; i < 300; i++)); do
  sleep 0 & kill -TERM $!
done 2>/dev/null
wait
exit 3
SCRIPT
  run report_end bash script
  assert_output $'added\nexit 3'
}

@test "a child that inherits the functions has no state of its parent's, also with set -a" {
  script -a <<'SCRIPT'
trap 'printf "earlier\n"' EXIT
lease__trap 'printf "parent\n"' EXIT
bash -e -u -c 'lease__trap "printf \"child\n\"" EXIT; exit 3' || printf '%s\n' "$?"
bash -c 'declare -p' | grep _LEASE__ || printf 'no state\n'
SCRIPT
  run report_end bash script
  assert_output $'child\n3\nno state\nearlier\nparent\nexit 0'
}

@test "what can't be trapped is refused on stderr, and nothing is changed" {
  local words
  for words in 'x' '"" EXIT' 'x KILL' 'x 9' 'x STOP' 'x ERR' 'x DEBUG' 'x RETURN' 'x NONE' 'x 999' 'x ""' 'x EXIT -1' 'x 18446744073709551616' ''; do
    script <<SCRIPT
trap -p >before
lease__trap $words && printf 'succeeded\n'
lease__untrap $words && printf 'succeeded\n'
trap -p >after
SCRIPT
    run --separate-stderr report_end bash script
    assert_output 'exit 0'
    assert_equal "${#stderr_lines[@]}" 2
    run cmp before after
    assert_success
  done
}
