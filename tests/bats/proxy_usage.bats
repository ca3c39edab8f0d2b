#!/usr/bin/env bats
# How step scripts use the functions, unmodified, at a lease proxy: `set -eu` put before them, $LEASE_PROXY_CLIENT_SH
# sourced, run with `bash -c`. One server for the whole file; each test has a type of its own.
# shellcheck disable=SC2016 # what stands in single quotes is for the scripts to expand
# shellcheck disable=SC2030,SC2031 # each test is a subshell, and means to be
# shellcheck disable=SC2154 # start_script sets script and reporter

bats_require_minimum_version 1.11.0

readonly INSTALL=openshift-org-aws--aws-2--install-quota-slice

setup_file() {
  load fault_proxy
  fault_proxy_start --resources "$INSTALL=us-east-1--install-quota-slice-00" \
    --resources destroy=1 --resources aws-quota-slice=4 --resources loose=40 --resources mixed=3
}

teardown_file() {
  fault_proxy_stop
}

setup() {
  load helper
  load fault_proxy
  use_own_state
  use_proxy
  export CLUSTER_PROFILE_SET_NAME=openshift-org-aws CLUSTER_PROFILE_NAME=aws-2
  # Stands in for the installer: says what it was called with and under which leases, and exits with
  # the code of its attempt in $CODES.
  # shellcheck disable=SC2329 # the steps call it
  openshift-install() {
    local codes
    read -ra codes <<<"${CODES:-0}"
    printf '%s, leased: %s\n' "$*" "$(fault_proxy_state leased)"
    printf x >>attempts
    return "${codes[$(wc -c <attempts) - 1]}"
  }
  export -f openshift-install
}

teardown() {
  [[ ! $(held) ]] || end_own_state
}

# Nothing is left leased, and no handle says otherwise.
assert_all_given_back() {
  eventually fault_proxy_has leased 0
  eventually holds
  run fault_proxy_check --state-dir "$LEASECTL_STATE_DIR"
  assert_output ''
}

# Another step of the same job: another container, so all that is left is SHARED_DIR.
begin_another_step() {
  export LEASECTL_STATE_DIR=$BATS_TEST_TMPDIR/state-of-another-step
}

# ---- install and destroy ----

# The part of a step's script that all the tests of the install loop have.
readonly INSTALL_STEP='
lease=""
lease_type="${CLUSTER_PROFILE_SET_NAME}--${CLUSTER_PROFILE_NAME}--install-quota-slice"
prepare_next_steps() {
  echo "prepare next steps"
}
trap "prepare_next_steps" EXIT TERM INT
release_leases() {
  lease__release --handle="$lease" >/dev/null || true
  prepare_next_steps
}
acquire_lease() {
  lease__install_lease_eligible || return 0
  trap "release_leases" EXIT TERM INT
  lease__release --handle="$lease" >/dev/null || true
  lease="$(lease__acquire --type="$lease_type" --scope=step || true)"
  lease__release --delay=20m --handle="$lease" &
}
'

@test "install: each attempt gives the old lease back first and has a lease; none is left" {
  CODES='4 4 0' run_step <<STEP
$INSTALL_STEP
for attempt in 1 2 3; do
  acquire_lease
  ret=0
  openshift-install create cluster || ret=\$?
  [[ \$ret == 4 ]] || break
done
exit "\$ret"
STEP
  assert_success
  local line="create cluster, leased: us-east-1--install-quota-slice-00"
  assert_output "$line"$'\n'"$line"$'\n'"$line"$'\nprepare next steps'
  assert_all_given_back
}

@test "install: TERM during the installation gives the lease back and prepares the next steps" {
  {
    printf 'set -eu\nsource "$LEASE_PROXY_CLIENT_SH"\n%s' "$INSTALL_STEP"
    cat <<'STEP'
acquire_lease
: >started
while [[ ! -e over ]]; do sleep 0.02; done
STEP
  } >script
  start_script
  eventually test -e started
  assert_equal "$(fault_proxy_state leased)" us-east-1--install-quota-slice-00
  # Its handler doesn't end the script, as in the original.
  kill -TERM "$script"
  eventually fault_proxy_has leased 0
  : >over
  wait "$reporter"
  assert_equal "$(<end)" $'prepare next steps\nprepare next steps\nexit 0'
  assert_all_given_back
}

@test "install: without such a lease the installer runs all the same" {
  CLUSTER_PROFILE_NAME=unknown run_step <<STEP
$INSTALL_STEP
acquire_lease
openshift-install create cluster
STEP
  assert_success
  assert_output $'create cluster, leased: \nprepare next steps'
  assert_regex "$stderr" 'openshift-org-aws--unknown--install-quota-slice.*resource type not found'
  assert_all_given_back
}

@test "install: a profile without install leases asks for none" {
  fault_proxy_mark "$BATS_TEST_NAME"
  CLUSTER_PROFILE_SET_NAME=aws run_step <<STEP
$INSTALL_STEP
acquire_lease
openshift-install create cluster
STEP
  assert_success
  assert_output $'create cluster, leased: \nprepare next steps'
  run fault_proxy_check --quiet-after "$BATS_TEST_NAME"
  assert_output ''
}

@test "destroy: a lease around the whole command, which may fail" {
  CODES=3 run_step <<'STEP'
lease="$(lease__acquire --type=destroy --scope=step)"
trap 'lease__release --handle="$lease"' EXIT
openshift-install destroy cluster &
wait "$!"
STEP
  assert_failure 3
  assert_output $'destroy cluster, leased: destroy--00\ndestroy--00 released'
  assert_all_given_back
}

# ---- leases that outlive their step ----

@test "acquire step: scope test, names as CSV into a file; a later step greps, another one releases" {
  run_step <<'STEP'
h=$(lease__acquire --type=aws-quota-slice --count=2 --scope=test)
lease__cat --handle="$h" --format=csv >>"$SHARED_DIR/proxy-leases"
STEP
  assert_success
  assert_equal "$(<"$SHARED_DIR/proxy-leases")" aws-quota-slice--00,aws-quota-slice--01
  # By now that one has ended, and no guard of it has released anything.
  begin_another_step
  run_step <<<'grep "^aws-quota-slice-" "$SHARED_DIR/leases"'
  assert_output $'aws-quota-slice--00\naws-quota-slice--01'
  begin_another_step
  run_step <<<'lease__release --scope=test; lease__release --scope=test'
  assert_success
  assert_output aws-quota-slice--00,aws-quota-slice--01\ released
  assert_equal "$(<"$SHARED_DIR/leases")" ''
  assert_all_given_back
}

@test "acquire step: one step after another adds to the list, and one release gives all back" {
  local count
  for count in 1 2; do
    LEASECTL_STATE_DIR=$PWD/state.$count run_step <<<"lease__acquire --type=aws-quota-slice --count=$count >/dev/null"
    assert_success
  done
  assert_equal "$(line_count "$SHARED_DIR/leases")" 3
  run_step <<<'lease__release --scope=test >/dev/null'
  assert_success
  assert_all_given_back
}

copied_handle() { # <count>
  run_step <<STEP
handle=\$(lease__acquire --type=loose --count=$1)
cp "\$handle" "\$SHARED_DIR/loose-leases"
touch "\$SHARED_DIR/loose-leases.lock"
mapfile -t names <"\$handle"
printf '%s\n' "\${#names[@]}"
printf '%s\n' "\${names[@]}" | sort -u | wc -l
STEP
  assert_success
  assert_output "$1"$'\n'"$1"
  # The default scope is test, which has no guard.
  fault_proxy_has leased "$1"
  begin_another_step
  run_step <<'STEP'
mapfile -t names <"$SHARED_DIR/loose-leases"
lease__release --handle="$SHARED_DIR/loose-leases" >released
[[ $(<released) == "$(IFS=,; printf '%s released' "${names[*]}")" ]]
lease__release --scope=test
STEP
  assert_success
  assert_output ''
  assert_equal "$(<"$SHARED_DIR/leases")" ''
  assert_all_given_back
}

for count in 1 15 20 30; do
  bats_test_function --description "a handle of $count copied into SHARED_DIR, its .lock touched, its names mapped, is released by a later step" -- \
    copied_handle "$count"
done

# The proxy gives back at the end of the job what no step has released.
copied_step_handle() { # <what becomes of the original, once the step has its copy>
  run_step <<STEP
handle=\$(lease__acquire --type=loose --count=2 --scope=step)
cp "\$handle" "\$SHARED_DIR/loose-leases"
touch "\$handle.lock" "\$SHARED_DIR/loose-leases.lock"
leasectl cat --handle "\$handle" --format json | grep -o '"guard_pid": [^,]*'
$1
STEP
  assert_success
  assert_output $'"guard_pid": null\n"guard_pid": null'
  # Any command gives back at once what the dead have left.
  leasectl status >/dev/null 2>&1 || :
  fault_proxy_has leased 2
  begin_another_step
  run_step <<<'lease__release --handle="$SHARED_DIR/loose-leases"'
  assert_success
  assert_output --regexp '^loose--[0-9]+,loose--[0-9]+ released$'
  fault_proxy_has leased 0
  run fault_proxy_check --state-dir "$LEASECTL_STATE_DIR"
  assert_output ''
}

for what in ':' 'rm -f "$handle" "$handle.lock"'; do
  bats_test_function --description "a handle of scope step is released by a later step, by its copy; of the original: $what" -- \
    copied_step_handle "$what"
done

@test "the older forms: --store, lease__release --name, lease__release_stored" {
  run_step <<'STEP'
names=$(lease__acquire --type=mixed --count=2 --store=true)
single=$(lease__acquire --type=mixed --store=false)
printf '%s %s\n' "$names" "$single"
lease__release --name="$single"
lease__release_stored
STEP
  assert_success
  assert_output $'mixed--00,mixed--01 mixed--02\nmixed--02 released\nmixed--00,mixed--01 released'
  assert_all_given_back
}

# ---- functions and commands in one script ----

@test "commands on a handle of the functions: cat, release, reacquire, run beside it" {
  run_step <<'STEP'
lease__acquire --type=mixed --scope=step --var=h
leasectl cat --handle "$h"
leasectl run -q --type mixed -- bash -c 'printf "%s\n" "$LEASECTL_NAMES"'
leasectl release --handle "$h"
lease__release --handle="$h"
[[ $(leasectl reacquire --handle "$h") == "$h" ]]
lease__cat --handle="$h" --pretty-format=csv
leasectl release --handle "$h" --delay 20m --detach
lease__guard "$h"
STEP
  assert_success
  assert_output $'mixed--00\nmixed--01\nmixed--00\nmixed--00'
  assert_regex "${stderr_lines[0]}" '^leasectl: mixed--00 will be released in 20m, '
  assert_equal "${stderr_lines[*]:1}" 'mixed--00 released'
  assert_all_given_back
}

@test "functions on a handle of the commands: cat, release, reacquire, guard" {
  run_step <<'STEP'
h=$(leasectl acquire -q --type mixed --count 2 --guard-pid $$)
lease__cat --handle="$h" --pretty-format=csv
lease__release --handle="$h"
leasectl release --handle "$h"
lease__reacquire --handle="$h" --var=g
[[ $g == "$h" ]]
leasectl cat --handle "$g" --format csv
lease__release --delay=20m --handle="$g"
lease__release --names="$(lease__cat --handle="$g" --format=csv)"
g=$(leasectl reacquire -q --handle "$h")
lease__guard "$g"
STEP
  assert_success
  assert_output $'mixed--00,mixed--01\nmixed--00,mixed--01 released\nmixed--00,mixed--01\nmixed--00,mixed--01 released'
  assert_regex "${stderr_lines[0]}" '^leasectl: mixed--00, mixed--01 will be released in 20m, '
  assert_equal "${stderr_lines[*]:1}" 'mixed--00,mixed--01 released'
  assert_all_given_back
}

@test "scope test of either is listed and released by either" {
  run_step <<'STEP'
h=$(lease__acquire --type=mixed)
g=$(leasectl acquire -q --type mixed --scope test)
cat "$SHARED_DIR/leases"
leasectl release --handle "$h"
lease__release --scope=test
h=$(lease__acquire --type=mixed)
leasectl release --scope test
lease__release --scope=test
STEP
  assert_success
  assert_output $'mixed--00\nmixed--01\nmixed--00\nmixed--01 released\nmixed--00'
  assert_all_given_back
}

@test "status: cat tells of a handle of either; of the proxy status tells what is held from here" {
  run_step <<'STEP'
h=$(lease__acquire --type=mixed --scope=step --guard)
leasectl cat --handle "$h" --format json
leasectl status
STEP
  assert_success
  assert_output --regexp '"state": "held".*"name": "mixed--00"'
  assert_output --regexp "doesn't report its pools; .*NAMES.* mixed--00 "
  assert_all_given_back
}
