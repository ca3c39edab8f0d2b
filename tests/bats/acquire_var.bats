#!/usr/bin/env bats
# Waiting for a lease: a signal ends the wait at once, and nothing stays leased.
# shellcheck disable=SC2016 # what stands in single quotes is for the scripts to expand
# shellcheck disable=SC2154 # start_script sets script and reporter

bats_require_minimum_version 1.11.0

setup() {
  load helper
  use_own_state
  export SHARED_DIR=$BATS_TEST_TMPDIR/shared
  mkdir "$SHARED_DIR"
  make_pool T
}

teardown() {
  end_own_state
}

# Has another holder hold T's only resource.
occupy() {
  other=$(leasectl acquire -t T)
}

# Nobody takes what becomes free.
assert_nothing_is_leased_later() {
  eventually nobody_waits
  [[ ! ${other-} ]] || leasectl release --handle "$other" >/dev/null
  sleep 0.2
  eventually holds
  run leasectl status -t T
  assert_line --regexp '^T +1 +1 +0 +0$'
  assert_equal "$(ls -A "$TMPDIR")" ''
}

# Has ./script wait, sends the signal, and looks at what is left. The resource is free only after the
# script's end: a script that went on waiting would never end.
assert_ended_by() { # <signal>
  start_script
  eventually someone_waits
  kill -"$1" "$script"
  wait "$reporter"
  assert_equal "$(<end)" $'earlier\nsignal '"$1"
  assert_nothing_is_leased_later
}

acquire_ended_by() { # <signal> <scope>
  occupy
  script -e -u -o pipefail <<SCRIPT
trap 'printf "earlier\n"' EXIT
lease__acquire --type=T --scope=$2 --var=h
printf 'not reached\n'
SCRIPT
  assert_ended_by "$1"
}

reacquire_ended_by() { # <signal> <scope>
  local handle
  handle=$(leasectl acquire -t T --scope "$2")
  leasectl release --handle "$handle" >/dev/null
  occupy
  script -e -u -o pipefail <<SCRIPT
trap 'printf "earlier\n"' EXIT
lease__reacquire --handle=$handle --var=h
printf 'not reached\n'
SCRIPT
  assert_ended_by "$1"
}

for signal in TERM INT HUP; do
  for scope in step test; do
    for verb in acquire reacquire; do
      # The three are heeded in the same way, and both verbs wait in the same way.
      [[ $signal$verb != HUPreacquire ]] || continue
      bats_test_function --description "$signal while $verb --var waits, scope $scope: the script ends by it at once" -- \
        "${verb}_ended_by" "$signal" "$scope"
    done
  done
done

@test "TERM with a handler that exits: it runs at once, then the wait is given up" {
  occupy
  script -e <<<'trap "printf \"term\n\"; exit 7" TERM; lease__acquire -t T --var=h'
  start_script
  eventually someone_waits
  kill -TERM "$script"
  wait "$reporter"
  assert_equal "$(<end)" $'term\nexit 7'
  assert_nothing_is_leased_later
}

@test "a handler that lets the script go on runs at once, and the wait goes on" {
  local options
  for options in +e '-o posix'; do
    occupy
    # shellcheck disable=SC2086 # several words
    script $options <<<'trap ": >handled" TERM; lease__acquire -t T --scope=step --var=h; lease__cat --handle="$h" --pretty-format=csv'
    start_script
    eventually someone_waits
    kill -TERM "$script"
    eventually test -e handled
    rm handled
    someone_waits
    leasectl release --handle "$other"
    wait "$reporter"
    assert_equal "$(<end)" $'T--00\nexit 0'
    eventually holds
  done
}

int_is_not_lost() { # <command that the wait runs>
  occupy
  mkdir bin
  printf '#!/bin/sh\n[ -e sent ] || { : >sent; kill -INT "$PPID"; }\nexec %s "$@"\n' "$(type -P "$1")" >"bin/$1"
  chmod +x "bin/$1"
  script <<<'trap "printf \"earlier\n\"" EXIT; PATH=$PWD/bin:$PATH; lease__acquire -t T --scope=step --var=h; printf "not reached\n"'
  start_script
  wait "$reporter"
  assert_equal "$(<end)" $'earlier\nsignal INT'
  assert_nothing_is_leased_later
}

# Bash ignores an INT while it waits for a command in the foreground that doesn't die of it.
for command in mkfifo rm; do
  bats_test_function --description "INT while acquire --var runs $command: it isn't lost" -- \
    int_is_not_lost "$command"
done

@test "INT where TERM is ignored: the script ends by it at once, too" {
  occupy
  script -e -u -o pipefail <<<'trap "" TERM; trap "printf \"earlier\n\"" EXIT; lease__acquire -t T --var=h'
  assert_ended_by INT
}

@test "an EXIT trap that takes long doesn't keep the script in the queue" {
  occupy
  script <<<'trap ": >in_trap; until [[ -e go ]]; do sleep 0.02; done" EXIT; lease__acquire -t T --var=h'
  start_script
  eventually someone_waits
  kill -TERM "$script"
  eventually test -e in_trap
  eventually nobody_waits
  : >go
  wait "$reporter"
  assert_equal "$(<end)" 'signal TERM'
  assert_nothing_is_leased_later
}

killed_script_leaves_the_queue() { # <scope> <how>
  occupy
  script <<<"$2"
  start_script
  eventually someone_waits
  kill -KILL "$script"
  wait "$reporter"
  eventually nobody_waits
  assert_nothing_is_leased_later
}

for scope in step test; do
  bats_test_function --description "KILL while acquire --var waits, scope $scope: it leaves the queue" -- \
    killed_script_leaves_the_queue "$scope" "lease__acquire -t T --scope=$scope --var=h"
  bats_test_function --description "KILL while h=(acquire) waits, scope $scope: it leaves the queue" -- \
    killed_script_leaves_the_queue "$scope" "h=\$(lease__acquire -t T --scope=$scope)"
done

@test "leasectl is killed while it waits: acquire fails, and nothing is leased" {
  occupy
  script <<<'lease__acquire -t T --var=h; printf "%s<%s>\n" "$?" "${h-}"; trap -p'
  start_script
  eventually someone_waits
  local pid
  for pid in $(pgrep -f 'leasectl acquire --type'); do
    ! grep -qzFx "LEASECTL_STATE_DIR=$LEASECTL_STATE_DIR" "/proc/$pid/environ" || kill -KILL "$pid"
  done
  wait "$reporter"
  assert_equal "$(<end)" $'1<>\nexit 0'
  leasectl release --handle "$other" >/dev/null
  run leasectl status -t T
  assert_line --regexp '^T +1 +1 +0 +0$'
}

@test "TERM at any moment of an acquisition: nothing stays leased, in scope test neither" {
  local delay
  for delay in 0.00 0.04 0.07 0.08 0.09 0.10 0.11 0.12 0.14; do
    script <<<'trap "[[ ! \${h-} ]] || lease__release --handle=\"\$h\" >/dev/null" EXIT; : >ready; lease__acquire -t T --var=h; sleep 300 >/dev/null 2>&1 & wait'
    start_script
    eventually test -e ready
    rm ready
    sleep "$delay"
    kill -TERM "$script"
    wait "$reporter"
    assert_equal "$(<end)" 'signal TERM'
    eventually nobody_waits
    eventually holds
  done
  assert_nothing_is_leased_later
}

@test "the script's jobs, \$! and wait know nothing of the wait" {
  script -e -u <<'SCRIPT'
sleep 60 >/dev/null 2>&1 & job=$!
lease__acquire -t T --var=h
[[ $! == "$job" ]]
[[ $(jobs -p) == "$job" ]]
lease__release --handle="$h" >/dev/null
h=$(lease__acquire -t T)
[[ $! == "$job" ]]
kill "$job"
status=0
wait || status=$?
printf '%s\n' "$status"
SCRIPT
  run report_end bash script
  assert_line --index 0 0
  assert_line --index 1 'exit 0'
}

@test "no descriptor stays open, and no child gets one" {
  occupy
  script <<'SCRIPT'
trap 'ls -l "/proc/$$/fd" >during; bash -c ": </dev/null"' USR1
ls "/proc/$$/fd" >before
lease__acquire -t T --scope=step --var=h
ls "/proc/$$/fd" >after
SCRIPT
  start_script
  eventually someone_waits
  leasectl release --handle "$other"
  wait "$reporter"
  run diff before after
  assert_success
}

@test "a trace that goes to stdout is no part of the handle" {
  script -e -u <<<'BASH_XTRACEFD=1; set -x; lease__acquire -t T --scope=step --var=h; set +x; lease__cat --handle="$h" --pretty-format=csv'
  run report_end bash script
  assert_line --index -2 T--00
  assert_line --index -1 'exit 0'
}

@test "the variable may be a local of the calling function" {
  script -e -u <<<'f() { local h=""; lease__acquire -t T --scope=step --var=h; lease__cat --handle="$h" --pretty-format=csv; }; f; printf "%s\n" "${h-unset}"'
  run report_end bash script
  assert_output $'T--00\nunset\nexit 0'
}

@test "the script's traps are afterwards what they were" {
  script <<'SCRIPT'
trap 'printf "it'\''s
  here\n"' EXIT
trap 'printf "term\n"' TERM
trap -p >before
lease__acquire -t T --var=h
trap -p >after
lease__acquire -t nope --var=h
trap -p >after.failure
cmp before after
cmp before after.failure
SCRIPT
  run --separate-stderr report_end bash script
  assert_output $'it\'s\n  here\nexit 0'
}
