#!/usr/bin/env bash
# A complete example: a CI step that installs a cluster, and holds an install lease while the installer
# floods the API of the cloud account.
#
#   install-cluster.sh [ARGUMENT...]          with the Bash functions, in a loop of the step's own
#   install-cluster.sh --run [ARGUMENT...]    the same with one `leasectl run`
#
# The arguments go to `openshift-install create cluster`. It gets up to 5 attempts, a new lease each,
# and runs again if it exits with 4, a problem of the infrastructure. leasectl releases the lease 20
# minutes after the grant, while the installer works on, or when the step ends. The lease is optional:
# if no lease is granted within two hours, the installer runs without one. The step doesn't request a
# lease if INSTALL_LEASE_ENABLED is false, no, 0 or empty, or if neither LEASE_PROXY_SERVER_URL nor
# LEASECTL_BACKEND is set. The exit status is the installer's.
#
# A step without leases has the same code, except for the section "the lease" below.
set -euo pipefail

readonly attempts=5 retry_on=4 wait=2h
readonly release_after=${INSTALL_LEASE_RELEASE_AFTER:-20m}
readonly installer=${INSTALLER_BINARY:-openshift-install}

# Records the status for later steps. The EXIT trap runs it for success, failure and signals.
# shellcheck disable=SC2329 # the EXIT trap calls it
prepare_next_steps() {
  local status=$?
  # A background process of Bash runs its parent's EXIT trap if it is killed before its command starts.
  [[ $BASHPID == "$$" ]] || return 0
  [[ ! ${SHARED_DIR-} ]] || printf '%s\n' "${ended_by:-$status}" >>"$SHARED_DIR/install-status.txt"
}

# Ends the installer, then this script by the same signal, so that the sender sees the right exit status.
ended_by=''
# shellcheck disable=SC2329 # traps call it
end_by() { # <signal>
  local pid
  for pid in $(jobs -rp); do
    kill -s "$1" "$pid" 2>/dev/null || :
  done
  # The loop is needed because another signal interrupts `wait` while the installer still cleans up.
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

# Runs a command so that a signal is handled at once, not only when the command has ended. `set -m`
# lets the command react to INT. It also keeps Ctrl-C from the command, so that only end_by sends it INT.
run() { # <command> [<argument>...]
  local pid status=0
  set -m
  "$@" </dev/null &
  set +m
  pid=$!
  wait "$pid" || status=$?
  # `wait` returns early if a trap of the script runs and doesn't end the script.
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

# Acquires a lease, and a new one for each later attempt. `lease__release --delay` is called once:
# `lease__reacquire` repeats the delay. --var is used because Bash handles no signal during $(...).
take_lease() {
  lease__install_lease_eligible || return 0
  if [[ $lease ]]; then
    lease__reacquire --handle="$lease" --wait="$wait" --var=lease || :
  elif lease__acquire --type="$lease_type" --scope=step --wait="$wait" --guard --var=lease; then
    # This adds the release to the EXIT trap above.
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
# If neither variable is set, `leasectl run` would lease from a pool on this machine. The loop is used
# instead: there the Bash functions print that nothing is leased.
if [[ $form == run && ${LEASE_PROXY_SERVER_URL-}${LEASECTL_BACKEND-} ]] && lease__install_lease_eligible && command -v leasectl >/dev/null; then
  run leasectl run --type "$lease_type" --optional --wait "$wait" --release-after "$release_after" \
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
