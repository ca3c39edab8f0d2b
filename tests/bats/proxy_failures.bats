#!/usr/bin/env bats
# What goes wrong with a lease proxy, or with the scripts that use one, and what is right then: one test or
# more for each of the failures that the Bash client before this one had. Each has a server of its
# own: what a fault leaves leased there can't be given back.
# shellcheck disable=SC2016 # what stands in single quotes is for the scripts to expand
# shellcheck disable=SC2030,SC2031 # each test is a subshell, and means to be
# shellcheck disable=SC2154 # start_script sets script and reporter

bats_require_minimum_version 1.11.0

setup() {
  load helper
  load fault_proxy
  use_own_state
}

teardown() {
  # Or the keeper would go on trying.
  [[ ! $(held) ]] || {
    fault_proxy_faults
    fault_proxy_accept
    end_own_state
  }
  fault_proxy_stop
}

start_proxy() { # <count of T> [<option of fault_proxy_start>...]
  fault_proxy_start --resources "T=$1" "${@:2}"
  use_proxy
}

# Nothing is leased but what handles hold, and nothing in handles that isn't leased.
assert_ledger() { # [<option of fault_proxy_check>...]
  run fault_proxy_check --state-dir "$LEASECTL_STATE_DIR" "$@"
  assert_output ''
  assert_success
}

assert_leased() { # [<name>...]
  assert_equal "$(fault_proxy_state leased)" "$(printf '%s\n' "$@")"
}

assert_listed() { # [<name>...]
  assert_equal "$(cat "$SHARED_DIR/leases")" "$(printf '%s\n' "$@")"
}

# How many acquires have come in.
acquires() {
  # Not those that only ask whether the server heeds keys.
  fault_proxy_log request | grep '"/lease/acquire' | grep -vc 'count=0'
}

# ---- what a script is told ----

# bats test_tags=failure:1
@test "an error goes to stderr, so that no error text becomes a handle" {
  start_proxy 1 --fault '500 path=acquire nth=2 text="Failed to acquire lease \"T\": context deadline exceeded"'
  run_step <<'STEP'
h=$(lease__acquire --type=nope) || printf '%s<%s>\n' "$?" "$h"
g=$(lease__acquire --type=T) || printf '%s<%s>\n' "$?" "$g"
lease__release --handle="$h"
lease__release --handle="$g"
STEP
  assert_success
  assert_output $'2<>\n1<>'
  # What is told of a wait on a busy machine is no error.
  # shellcheck disable=SC2154 # run sets it
  mapfile -t stderr_lines < <(grep -v '^leasectl: waiting for ' <<<"$stderr")
  assert_equal "${#stderr_lines[@]}" 2
  assert_regex "${stderr_lines[0]}" 'resource type not found'
  assert_regex "${stderr_lines[1]}" 'context deadline exceeded'
  # Nor a lock file with its name.
  assert_equal "$(find . -name '*.lock' ! -path ./state/state.lock)" ''
  assert_leased
}

# bats test_tags=failure:2
@test "a failure is returned, also by a function that declares local variables, and then set -e ends the script" {
  start_proxy 1
  run_step <<'STEP'
install() {
  local h=''
  h=$(lease__acquire --type=nope) || printf 'acquire returned %s\n' "$?"
  lease__acquire --type=nope --var=h || printf 'acquire --var returned %s\n' "$?"
  h=$(lease__acquire --type=nope)
  printf 'not reached\n'
}
install
STEP
  assert_failure 2
  assert_output $'acquire returned 2\nacquire --var returned 2'
}

# bats test_tags=failure:2
@test "a release that failed is returned, and can be made up for" {
  start_proxy 1 --fault '500 path=release text="no disk space"'
  export LEASECTL_RELEASE_TIMEOUT=1s
  run_step <<'STEP'
h=$(lease__acquire --type=T)
lease__release --handle="$h" || printf 'returned %s\n' "$?"
printf 'still holds %s\n' "$(lease__cat --handle="$h")"
STEP
  assert_success
  assert_output $'returned 1\nstill holds T--00'
  assert_regex "$stderr" 'no disk space'
  assert_ledger
  fault_proxy_faults
  run_step <<<'lease__release --scope=test'
  assert_output 'T--00 released'
  assert_leased
  assert_ledger
}

# bats test_tags=failure:3
@test "a proxy that refuses connections costs a call less than a step's grace period" {
  start_proxy 30
  export LEASECTL_RELEASE_TIMEOUT=2s
  run_step <<<'lease__acquire --type=T --count=30 >handle'
  assert_success
  fault_proxy_refuse
  # Both at once, to wait for them only once: acquire has ten seconds. The limits are there to tell
  # that from 50 s, and two seconds in all from two for each name.
  run_step <<'STEP'
try() { # <seconds> <what> <option>...
  local code=0
  timeout "$1" bash -c '"$@"' bash "lease__$2" "${@:3}" >/dev/null || code=$?
  printf '%s %s\n' "$2" "$code" >"$2"
}
try 40 acquire --type=T --scope=step &
try 15 release --scope=test &
wait
cat acquire release
STEP
  assert_success
  assert_output $'acquire 1\nrelease 1'
  assert_regex "$stderr" "can't reach $FAULT_PROXY_URL"
  fault_proxy_accept
  unset LEASECTL_RELEASE_TIMEOUT # thirty names, on a machine that may be busy
  run_step <<<'lease__release --scope=test'
  assert_success
  assert_leased
}

# bats test_tags=failure:4
@test "cat --format=csv succeeds, so that a script with set -e lives on" {
  start_proxy 2
  run_step <<'STEP'
h=$(lease__acquire --type=T --count=2)
lease__cat --handle="$h" --format=csv
printf '\nlives on\n'
STEP
  assert_success
  assert_output $'T--00,T--01\nlives on'
}

# ---- what is granted is not lost ----

# bats test_tags=failure:5
@test "a grant whose answer was lost is told of, and asked for once more and no more" {
  start_proxy 3 --fault 'reset-after path=acquire nth=1'
  run_step <<'STEP'
h=$(lease__acquire --type=T)
lease__cat --handle="$h" --pretty-format=csv
lease__release --handle="$h" >/dev/null
STEP
  assert_success
  assert_output T--01
  assert_regex "$stderr" 'a lease of T may have been granted and stay leased until the job ends'
  assert_equal "$(acquires)" 2
  # Nobody can name that one.
  assert_leased T--00
  assert_ledger --lost
}

# bats test_tags=failure:5
@test "at a server that heeds the key of a request, a lost answer loses no lease" {
  start_proxy 3 --idempotent --fault 'reset-after path=acquire nth=1'
  run_step <<'STEP'
h=$(lease__acquire --type=T)
lease__cat --handle="$h" --pretty-format=csv
lease__release --handle="$h" >/dev/null
STEP
  assert_success
  assert_output T--00
  assert_leased
}

# bats test_tags=failure:6
@test "an error after the first of two grants costs no lease: the second is asked for again" {
  start_proxy 2 --fault 'fail-unit path=acquire nth=2'
  # A pool that is just large enough: whoever asked for both again would wait behind itself.
  run_step <<'STEP'
h=$(lease__acquire --type=T --count=2)
lease__cat --handle="$h" --pretty-format=csv
STEP
  assert_success
  assert_output T--00,T--01
  assert_leased T--00 T--01
  assert_ledger
}

# bats test_tags=failure:6
@test "an error that stays after the first of two grants gives the first one back" {
  start_proxy 2 --fault '500 path=acquire nth=2 text="Failed to acquire lease \"T\": context deadline exceeded"'
  run_step <<<'lease__acquire --type=T --count=2'
  assert_failure 1
  assert_output ''
  assert_leased
  assert_ledger
}

# bats test_tags=failure:7
@test "without a SHARED_DIR, and with a type that is none, nothing is asked for" {
  start_proxy 1
  run_step <<'STEP'
unset SHARED_DIR
lease__acquire --type=T || printf '%s\n' "$?"
lease__acquire --type=a/b --scope=step || printf '%s\n' "$?"
STEP
  assert_output $'1\n1'
  assert_equal "$(fault_proxy_state requests)" 0
}

# bats test_tags=failure:7
@test "when the list in SHARED_DIR can't be written after a grant, the lease goes back" {
  start_proxy 1
  # Also for root, whom a read-only folder doesn't keep from anything.
  mkdir "$SHARED_DIR/leases"
  run_step <<<'lease__acquire --type=T'
  assert_failure 1
  assert_output ''
  assert_regex "$stderr" "$SHARED_DIR/leases"
  assert_equal "$(acquires)" 1
  assert_leased
  assert_ledger
}

# bats test_tags=failure:7
@test "an answer that isn't JSON is no handle, and what it may have granted is told of" {
  start_proxy 3 --fault 'not-json path=acquire nth=1'
  run_step <<<'h=$(lease__acquire --type=T); lease__cat --handle="$h"; lease__release --handle="$h" >/dev/null'
  assert_success
  assert_output T--01
  assert_regex "$stderr" 'may have been granted'
  assert_leased T--00
  assert_ledger --lost
}

# ---- release of scope test ----

# bats test_tags=failure:9
@test "release --scope=test gives back the others when one of them fails, and succeeds afterwards" {
  start_proxy 3 --fault 'fail-unit path=release nth=2'
  run_step <<'STEP'
h=$(lease__acquire --type=T --count=3)
lease__release --scope=test
lease__release --scope=test
STEP
  assert_success
  # The proxy no longer knows T--01, so its release isn't claimed.
  assert_output 'T--00,T--02 released'
  assert_listed
  # Boskos failed to free it, and the proxy has forgotten it.
  assert_leased T--01
  assert_ledger
}

# bats test_tags=failure:9
@test "release tries each name, also when one of them hangs, and the next one releases that" {
  start_proxy 3 --fault "hang path=release nth=2$(printf ',%d' {4..30})"
  export LEASECTL_RELEASE_TIMEOUT=2s
  run_step <<'STEP'
h=$(lease__acquire --type=T --count=3)
lease__release --scope=test || printf 'returned %s\n' "$?"
STEP
  assert_success
  assert_output $'T--00,T--02 released\nreturned 1'
  assert_leased T--01
  assert_listed T--01
  assert_ledger
  fault_proxy_faults
  run_step <<<'lease__release --scope=test'
  assert_output 'T--01 released'
  assert_leased
}

# bats test_tags=failure:10
@test "release by handle takes the names out of SHARED_DIR/leases, so that release --scope=test succeeds" {
  start_proxy 2
  run_step <<'STEP'
h=$(lease__acquire --type=T --scope=test)
g=$(lease__acquire --type=T --scope=test)
lease__release --handle="$h"
cat "$SHARED_DIR/leases"
lease__release --scope=test
lease__release --scope=test
STEP
  assert_success
  assert_output $'T--00 released\nT--01\nT--01 released'
  assert_listed
  assert_leased
}

# bats test_tags=failure:11
@test "what is acquired during a release --scope=test stays listed, and is released by the next" {
  start_proxy 2 --fault 'hang path=release nth=1'
  run_step <<<'h=$(lease__acquire --type=T)'
  assert_success
  bash -c 'set -eu; source "$LEASE_PROXY_CLIENT_SH"; lease__release --scope=test' >first 2>&1 3>&- &
  local first=$!
  eventually fault_proxy_has hanging 1
  run_step <<<'h=$(lease__acquire --type=T); lease__cat --handle="$h"'
  assert_output T--01
  fault_proxy_resume
  wait "$first"
  assert_equal "$(<first)" 'T--00 released'
  assert_listed T--01
  assert_leased T--01
  run_step <<<'lease__release --scope=test'
  assert_output 'T--01 released'
  assert_leased
  assert_listed
}

# ---- whatever the step's image and environment are like ----

# bats test_tags=failure:12,failure:13
@test "jq, curl and flock are not needed, and SHELL may be any" {
  local name
  start_proxy 2
  mkdir bin
  for name in bash leasectl mkfifo rm timeout; do
    ln -s "$(type -P "$name")" bin/
  done
  run_step <<'STEP'
export SHELL=/bin/sh PATH=$PWD/bin
h=$(lease__acquire --type=T --count=2)
lease__release --handle="$h"
lease__acquire --type=T --scope=step --var=g
lease__guard "$g"
STEP
  assert_success
  assert_output 'T--00,T--01 released'
  assert_leased
  assert_ledger
}

# bats test_tags=failure:14
@test "a web proxy in the environment is not asked for leases, nor to release them" {
  start_proxy 1
  run_step <<'STEP'
h=$(lease__acquire --type=T)
export http_proxy=http://127.0.0.1:9 HTTP_PROXY=http://127.0.0.1:9 all_proxy=http://127.0.0.1:9 ALL_PROXY=http://127.0.0.1:9
lease__release --handle="$h"
h=$(lease__acquire --type=T)
unset http_proxy HTTP_PROXY all_proxy ALL_PROXY
lease__release --handle="$h"
STEP
  assert_success
  assert_output $'T--00 released\nT--00 released'
  assert_leased
}

# ---- the background, and the end ----

# bats test_tags=failure:15
@test "a background release that hangs doesn't hold up the release in the EXIT trap for longer than 15 s" {
  start_proxy 1 --fault 'hang path=release nth=1'
  script -e -u <<'SCRIPT'
trap 'lease__release --handle="$h"' EXIT
h=$(lease__acquire --type=T)
lease__release --handle="$h" >/dev/null 2>&1 &
until [[ -e hangs ]]; do sleep 0.02; done
SCRIPT
  start_script
  eventually fault_proxy_has hanging 1
  : >hangs
  eventually fault_proxy_has leased 0
  eventually is_gone "$script"
  fault_proxy_resume
  wait "$reporter"
  assert_equal "$(<end)" $'T--00 released\nexit 0'
  assert_ledger
}

# bats test_tags=failure:16
@test "a script that ends before its delayed release lets go of stdout at once, and of the lease" {
  start_proxy 1
  # Whoever reads stdout to its end is at its end.
  run_step <<'STEP'
h=$(lease__acquire --type=T --scope=step --guard)
lease__release --delay=20m --handle="$h" &
wait
printf 'over\n'
STEP
  assert_success
  assert_output over
  eventually fault_proxy_has leased 0
  eventually holds
  assert_ledger
}

# bats test_tags=failure:16
@test "a lease with a delayed release and a guard is released before the script ends" {
  start_proxy 1
  run_step <<'STEP'
h=$(lease__acquire --type=T)
lease__guard "$h"
lease__release --delay=20m --handle="$h" &
wait
STEP
  assert_success
  assert_output ''
  assert_leased
  assert_ledger
}

# bats test_tags=failure:16
@test "a script that ends before its delayed release in the background has begun lets go, too" {
  start_proxy 1
  run_step <<'STEP'
h=$(lease__acquire --type=T --scope=step --guard)
lease__release --delay=20m --handle="$h" &
STEP
  assert_success
  eventually fault_proxy_has leased 0
  eventually holds
  assert_ledger
}

# bats test_tags=failure:17
@test "KILL of the script: with scope step and --guard the lease is released" {
  start_proxy 1
  run_step <<'STEP'
h=$(lease__acquire --type=T --scope=step --guard)
kill -KILL $$
STEP
  assert_failure 137
  eventually fault_proxy_has leased 0
  eventually holds
  assert_ledger
}

# bats test_tags=failure:17
@test "KILL of the script: with scope test SHARED_DIR names the lease, and a later step releases it" {
  start_proxy 1
  run_step <<'STEP'
h=$(lease__acquire --type=T)
kill -KILL $$
STEP
  assert_failure 137
  assert_listed T--00
  run_step <<<'lease__release --scope=test'
  assert_output 'T--00 released'
  assert_leased
}

# bats test_tags=failure:18
@test "what can't be meant fails before anything is asked for or waited for" {
  start_proxy 1
  run_step <<'STEP'
h=$(lease__acquire --type=T --scope step)
[[ ! -e $SHARED_DIR/leases ]]
lease__release --handle="$h" --delay=20min || printf 'delay: %s\n' "$?"
lease__acquire --scope=step -t || printf -- '-t: %s\n' "$?"
lease__acquire -t T --scope step test || printf 'scope: %s\n' "$?"
fault_proxy_state requests
fault_proxy_state leased
lease__release --handle="$h"
STEP
  assert_success
  assert_output $'delay: 1\n-t: 1\nscope: 1\n1\nT--00\nT--00 released'
  assert_leased
}

# bats test_tags=failure:19
@test "the script's own traps stay, and its handler of TERM ends it: each cleanup runs once" {
  start_proxy 1
  script -e -u <<'SCRIPT'
trap 'printf "own TERM\n"; exit 3' TERM
trap 'printf "own EXIT\n"' EXIT
lease__acquire --type=T --var=h
lease__guard "$h"
lease__trap 'printf "added\n"' EXIT
: >ready
while :; do sleep 0.02; done
SCRIPT
  start_script
  eventually test -e ready
  kill -TERM "$script"
  wait "$reporter"
  assert_equal "$(<end)" $'own TERM\nown EXIT\nadded\nexit 3'
  assert_leased
  assert_ledger
}

# bats test_tags=failure:19
@test "a cleanup that is on EXIT and TERM runs once, and TERM still ends the script" {
  start_proxy 1
  script -e -u <<'SCRIPT'
lease__acquire --type=T --var=h
lease__trap 'lease__release --handle="$h"' EXIT TERM INT
: >ready
while :; do sleep 0.02; done
SCRIPT
  start_script
  eventually test -e ready
  kill -TERM "$script"
  wait "$reporter"
  assert_equal "$(<end)" $'T--00 released\nsignal TERM'
  assert_leased
  assert_ledger
}
