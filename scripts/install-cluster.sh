#!/usr/bin/env bash
# A worked example: a CI step that installs a cluster and holds an install lease for as long as that
# loads the cloud account.
#
#   install-cluster.sh [ARGUMENT...]          with the Bash functions, in a loop of the step's own
#   install-cluster.sh --run [ARGUMENT...]    the same with one `leasectl run`
#
# The arguments go to `openshift-install create cluster`. It gets up to 5 attempts, a new lease each,
# and runs again if it exits with 4, a problem of the infrastructure. leasectl releases the lease 20
# minutes after the grant, while the installer works on, or when the step ends. The lease is optional:
# without one the installer still runs. With INSTALL_LEASE_ENABLED=false (or no, 0, or empty) the step
# asks for none, and so it does if neither LEASE_PROXY_SERVER_URL nor LEASECTL_BACKEND is set. The exit
# status is the installer's.
#
# Everything outside of "the lease" below is what a step looks like without one.
set -euo pipefail

readonly attempts=5 retry_on=4
readonly release_after=${INSTALL_LEASE_RELEASE_AFTER:-20m}
readonly installer=${INSTALLER_BINARY:-openshift-install}

# What a step leaves to those after it, however it ends.
# shellcheck disable=SC2329 # the EXIT trap calls it
prepare_next_steps() {
  local status=$?
  # A job that is killed before it has begun runs its parent's EXIT trap.
  [[ $BASHPID == "$$" ]] || return 0
  [[ ! ${SHARED_DIR-} ]] || printf '%s\n' "${ended_by:-$status}" >>"$SHARED_DIR/install-status.txt"
}

# Ends the installer, then this script by the same signal: whoever sent it sees what came of it.
ended_by=''
# shellcheck disable=SC2329 # traps call it
end_by() { # <signal>
  local pid
  for pid in $(jobs -rp); do
    kill -s "$1" "$pid" 2>/dev/null || :
  done
  # `wait` returns when another signal comes, and the installer may take its time to tidy up.
  while [[ $(jobs -rp) ]]; do
    wait || :
  done
  ended_by=SIG$1
  # An abort is INT and then TERM; the second must not cut the EXIT trap short.
  trap '' INT TERM
  trap - "$1"
  kill -s "$1" $$
}

trap prepare_next_steps EXIT
trap 'end_by TERM' TERM
trap 'end_by INT' INT

# Runs a command so that a signal is handled at once, not only when the command has ended. Under
# `set -m` it doesn't ignore INT as background commands do, and Ctrl-C reaches it once: through us.
run() { # <command> [<argument>...]
  local pid status=0
  set -m
  "$@" </dev/null &
  set +m
  pid=$!
  wait "$pid" || status=$?
  # A trap that lets the script go on makes `wait` return early.
  while kill -0 "$pid" 2>/dev/null; do
    status=0
    wait "$pid" || status=$?
  done
  return "$status"
}

# ---- the lease ---------------------------------------------------------------------------------

client=${LEASE_PROXY_CLIENT_SH:-${BASH_SOURCE[0]%/*}/client.sh}
lease_type=${CLUSTER_PROFILE_SET_NAME-}--${CLUSTER_PROFILE_NAME-}--install-quota-slice
lease=''

# Takes a lease, and for another attempt a new one. The delayed release that is asked for once is
# armed again each time. --var, because a signal isn't handled while Bash waits for $(...).
take_lease() {
  lease__install_lease_eligible || return 0
  if [[ $lease ]]; then
    lease__reacquire --handle="$lease" --var=lease || :
  elif lease__acquire --type="$lease_type" --scope=step --guard --var=lease; then
    # Added to the EXIT trap that is set above.
    lease__guard "$lease" || :
    lease__release --handle="$lease" --delay="$release_after" || :
  fi
}

# shellcheck source=client.sh
if ! source "$client"; then
  printf 'no %s: installing without a lease\n' "$client" >&2
  lease__install_lease_eligible() { false; }
fi

# ---- the installation --------------------------------------------------------------------------

status=0
form=functions
if [[ ${1-} == --run ]]; then
  form=run
  shift
fi
# Where neither variable names a backend the functions make a dry run, and say so; `leasectl run` would
# take the lease from a pool of this machine. Without a lease the loop does the same.
if [[ $form == run && ${LEASE_PROXY_SERVER_URL-}${LEASECTL_BACKEND-} ]] && lease__install_lease_eligible && command -v leasectl >/dev/null; then
  run leasectl run --type "$lease_type" --optional --wait 2h --release-after "$release_after" \
    --attempts "$attempts" --retry-on "$retry_on" -- "$installer" create cluster "$@" || status=$?
else
  for ((attempt = 1; attempt <= attempts; attempt++)); do
    take_lease
    status=0
    run "$installer" create cluster "$@" || status=$?
    ((status == retry_on)) || break
    printf 'attempt %d of %d: exit code %d\n' "$attempt" "$attempts" "$status" >&2
  done
fi
exit "$status"
