#!/usr/bin/env bats
# What ends a script that waits for a lease at a lease proxy: nothing of it takes a lease later.
# shellcheck disable=SC2016 # what stands in single quotes is for the scripts to expand
# shellcheck disable=SC2154 # start_script sets script and reporter

bats_require_minimum_version 1.11.0

# One server, with a pool of one that another job has, for all the tests: each leaves it so.
setup_file() {
  load fault_proxy
  fault_proxy_start --resources T=1
  fault_proxy_occupy T
}

teardown_file() {
  fault_proxy_stop
}

setup() {
  load helper
  load fault_proxy
  use_own_state
  use_proxy
}

teardown() {
  [[ ! $(held) ]] || end_own_state
}

# What ./script asked for becomes free, and nobody takes it: all that could ask for it has ended, no
# connection is open on which it could be granted, and nothing was asked for since.
assert_nobody_takes_it() {
  wait "$reporter"
  eventually no_connection
  fault_proxy_mark "$BATS_TEST_NAME"
  fault_proxy_vacate
  assert_equal "$(fault_proxy_occupy T)" T--00
  run fault_proxy_check --state-dir "$LEASECTL_STATE_DIR" --quiet-after "$BATS_TEST_NAME"
  assert_output ''
  assert_success
}

no_connection() {
  [[ $(fault_proxy_state open_connections) == 0 ]]
}

signalled() { # <signal> <command that waits>
  script -e -u -o pipefail <<<"trap 'printf \"own\\n\"' EXIT; $2; printf 'not reached\n'"
  start_script
  eventually fault_proxy_has waiting 1
  kill -"$1" "$script"
  # The deadline is what a slow machine may take; within it only what is woken by the signal can be.
  eventually test -e end
  assert_equal "$(<end)" $'own\nsignal '"$1"
  assert_nobody_takes_it
}

# It has no traps, and is what is signalled.
run_signalled() { # <signal>
  script <<<'exec leasectl run -q -t T -- touch ran'
  start_script
  eventually fault_proxy_has waiting 1
  kill -"$1" "$script"
  eventually test -e end
  assert_equal "$(<end)" "signal $1"
  [[ ! -e ran ]]
  assert_nobody_takes_it
}

killed() { # <command that waits>
  script -e -u <<<"$1"
  start_script
  eventually fault_proxy_has waiting 1
  kill -KILL "$script"
  eventually test -e end
  assert_equal "$(<end)" 'signal KILL'
  assert_nobody_takes_it
}

@test "KILL while acquire --var waits: nothing complains of a broken pipe" {
  # The file is complete once nothing that the script has left has its stderr.
  script -e -u <<<"exec 2> >(cat >stderr; : >complete); trap '' PIPE; lease__acquire --type=T --scope=step --var=h"
  start_script
  eventually fault_proxy_has waiting 1
  kill -KILL "$script"
  eventually test -e complete
  refute_regex "$(<stderr)" 'Broken pipe'
}

for signal in TERM INT; do
  for scope in step test; do
    bats_test_function --description "$signal while acquire --var waits, scope $scope: the script ends by it, its own trap runs, and nothing is leased later" -- \
      signalled "$signal" "lease__acquire --type=T --scope=$scope --var=h"
  done
  bats_test_function --description "$signal while leasectl run waits: it ends by it, and nothing is leased later" -- \
    run_signalled "$signal"
done
for scope in step test; do
  bats_test_function --description "KILL while acquire --var waits, scope $scope: nothing is leased later" -- \
    killed "lease__acquire --type=T --scope=$scope --var=h"
  bats_test_function --description "KILL while h=(acquire) waits, scope $scope: nothing is leased later" -- \
    killed "h=\$(lease__acquire --type=T --scope=$scope)"
done
