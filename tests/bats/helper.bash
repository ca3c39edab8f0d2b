# shellcheck shell=bash
# What all the tests of the Bash functions share. A test's own folder is the current directory; the
# shell that bats runs the test in has traps of bats', so everything about traps runs in scripts.

ROOT=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)
FUNCTIONS=$ROOT/leasectl/shell/leasectl.bash

bats_load_library bats-support
bats_load_library bats-assert

# A state directory of the test's own, and no setting from outside.
use_own_state() {
  cd "$BATS_TEST_TMPDIR" || return
  unset "${!LEASE_PROXY_@}" "${!CLUSTER_PROFILE_@}" "${!_LEASE__@}" SHARED_DIR JOB_NAME BUILD_ID BUILD_URL
  unset GITHUB_ACTIONS GITLAB_CI BUILDKITE CIRCLECI TF_BUILD INSTALL_LEASE_ENABLED
  mkdir tmp
  export TMPDIR=$BATS_TEST_TMPDIR/tmp LEASECTL_BACKEND=local: LEASECTL_STATE_DIR=$BATS_TEST_TMPDIR/state
  export FUNCTIONS
}

# Has scripts take their leases from the lease proxy that fault_proxy_start has started.
use_proxy() {
  unset LEASECTL_BACKEND
  export LEASE_PROXY_SERVER_URL=$FAULT_PROXY_URL LEASE_PROXY_CLIENT_SH=$ROOT/scripts/client.sh
  export SHARED_DIR=$BATS_TEST_TMPDIR/shared
  mkdir -p "$SHARED_DIR"
}

# The keeper ends by itself when nothing is left for it to do.
end_own_state() {
  [[ ! -d ${LEASECTL_STATE_DIR-} ]] || { [[ ! $(held) ]] && nobody_waits; } ||
    leasectl release --all >/dev/null || :
}

# Most tests begin with the same pool: the first that wants one like it makes it for all.
make_pool() { # <type> [<count>]
  local made=$BATS_RUN_TMPDIR/pool.$1.${2:-1}
  if [[ -e $LEASECTL_STATE_DIR ]]; then
    leasectl pool create "$1" --count "${2:-1}" 2>/dev/null
    return
  fi
  [[ -e $made ]] || LEASECTL_STATE_DIR=$made leasectl pool create "$1" --count "${2:-1}" 2>/dev/null || return
  cp -a "$made" "$LEASECTL_STATE_DIR"
}

# Prints how the command ended after what it printed itself.
report_end() { # <command> [<argument>...]
  python3 -SE "$BATS_TEST_DIRNAME/report_end.py" "$@" 3>&-
}

# Writes standard input to a script that begins with the functions, and makes it the test's `script`.
script() { # [<word that sets options>...]
  {
    (($# == 0)) || printf 'set %s\n' "$*"
    # shellcheck disable=SC2016 # the script expands it
    printf 'source "$FUNCTIONS"\n'
    cat
  } >script
}

# Starts ./script, and leaves its pid in $script. How it ended is in the file `end` behind what it
# printed, and $reporter has ended, when nobody is left who could write to its stderr: no leasectl that it
# started, the keeper apart.
# shellcheck disable=SC2034,SC2016 # the tests use what is set; the inner bash expands it
start_script() {
  rm -f pid end
  (
    report_end bash -c 'printf "%s\n" "$$" >pid.new; mv pid.new pid; exec bash script' 2>&1 >end.new | cat >errors
    mv end.new end
  ) 3>&- &
  reporter=$!
  eventually test -e pid
  script=$(<pid)
}

# Runs standard input as the commands of a step are run; $output and $stderr are what it printed.
run_step() {
  # shellcheck disable=SC2016 # the step expands it
  run --separate-stderr bash -c "$(printf '%s\n' 'set -eu' 'source "$LEASE_PROXY_CLIENT_SH"' && cat)"
}

# Waits until a command succeeds. The limit is late, so that a busy machine fails no test.
eventually() { # <command> [<argument>...]
  local deadline=$((SECONDS + 300))
  until "$@"; do
    if ((SECONDS > deadline)); then
      printf 'not within 300 s: %s\n' "$*"
      return 1
    fi
    sleep 0.02
  done
}

# Prints the names that handles hold, without leasectl, which would put right what is wrong.
held() {
  local handle name
  for handle in "$LEASECTL_STATE_DIR"/handles/*; do
    [[ ! -s $handle ]] || while IFS= read -r name || [[ $name ]]; do
      printf '%s\n' "$name"
    done <"$handle"
  done
}

holds() { # [<name>...]
  [[ $(held) == "$(printf '%s\n' "$@")" ]]
}

someone_waits() {
  compgen -G "$LEASECTL_STATE_DIR/waiters/*" >/dev/null
}

nobody_waits() {
  ! someone_waits
}

is_gone() { # <process id>
  local stat=''
  read -r stat 2>/dev/null <"/proc/$1/stat" || return 0
  stat=${stat##*) }
  [[ ${stat%% *} == Z ]]
}

line_count() { # <file>
  local lines=()
  mapfile -t lines <"$1"
  printf '%s' "${#lines[@]}"
}
