# shellcheck shell=bash
# A lease proxy with scripted faults for the tests of the Bash functions; tests/kit/faults/README.md says
# which faults there are. One at a time: a test's own, or one that setup_file starts for the whole
# file. The teardown of whichever it is calls fault_proxy_stop.
#
#   load fault_proxy
#   fault_proxy_start --resources T=3 --fault 'reset-after path=acquire nth=1'
#   LEASE_PROXY_SERVER_URL=$FAULT_PROXY_URL bash -c '...'
#   fault_proxy_check --state-dir "$LEASECTL_STATE_DIR"

_FAULT_PROXY_SOURCE=$(cd "${BASH_SOURCE[0]%/*}/../kit/faults" && pwd)

# Sets FAULT_PROXY_URL, FAULT_PROXY_PID and FAULT_PROXY_LOG. Not for a subshell: it ends with the shell that
# it was called in. All is exported, also for the scripts of a test, which can ask for the state.
fault_proxy_start() { # [<option of lease_proxy.py>...]
  # $BASHPID behind a command that ends with & would be that command's.
  local folder shell=$BASHPID
  folder=$(mktemp -d "${BATS_TEST_TMPDIR:-${BATS_FILE_TMPDIR:-${TMPDIR:-/tmp}}}/fault-proxy.XXXXXX") || return
  _FAULT_PROXY_PORT_FILE=$folder/url FAULT_PROXY_LOG=$folder/url.log
  # Without bats' descriptors, or bats would wait for it.
  python3 -SE "$_FAULT_PROXY_SOURCE/lease_proxy.py" --port-file "$_FAULT_PROXY_PORT_FILE" \
    --parent "$shell" "$@" </dev/null >"$folder/output" 2>&1 3>&- 4>&- &
  FAULT_PROXY_PID=$!
  until [[ -e $_FAULT_PROXY_PORT_FILE ]]; do
    if ! kill -0 "$FAULT_PROXY_PID" 2>/dev/null; then
      printf 'the lease proxy has ended: %s\n' "$(<"$folder/output")" >&2
      return 1
    fi
    sleep 0.02
  done
  FAULT_PROXY_URL=$(<"$_FAULT_PROXY_PORT_FILE")
  export FAULT_PROXY_URL FAULT_PROXY_PID FAULT_PROXY_LOG _FAULT_PROXY_PORT_FILE _FAULT_PROXY_SOURCE
  export -f fault_proxy_state fault_proxy_mark _fault_proxy_control
}

# Succeeds also when it has ended already or was never started, for teardown.
fault_proxy_stop() {
  [[ ${FAULT_PROXY_PID-} ]] || return 0
  # One that was STOPped ends when it goes on.
  kill -TERM "$FAULT_PROXY_PID" 2>/dev/null || :
  kill -CONT "$FAULT_PROXY_PID" 2>/dev/null || :
  wait "$FAULT_PROXY_PID" 2>/dev/null || :
  FAULT_PROXY_PID=''
}

# Prints the state as JSON, or of one of its keys the values, a line each: leased, forgotten,
# occupied, free, waiting, hanging, requests, connections, open_connections, listening.
fault_proxy_state() { # [<key>]
  _fault_proxy_control state "$@"
}

# Puts these rules in force instead of all others; without any, nothing goes wrong any more.
fault_proxy_faults() { # [<rule>...]
  _fault_proxy_control faults "$@"
}

# Closes the listening socket, for good or for a while.
fault_proxy_refuse() { # [<seconds>]
  _fault_proxy_control refuse "$@"
}

fault_proxy_accept() {
  _fault_proxy_control accept
}

# Lets the requests that hang go on.
fault_proxy_resume() {
  _fault_proxy_control resume
}

# Lets other jobs have free resources, and prints their names.
fault_proxy_occupy() { # <type> [<count>]
  _fault_proxy_control occupy "$@"
}

# Lets other jobs give back what they have.
fault_proxy_vacate() { # [<name>...]
  _fault_proxy_control vacate "$@"
}

# Writes a line into the log, for `fault_proxy_check --quiet-after`.
fault_proxy_mark() { # <text>
  _fault_proxy_control mark "$1"
}

# Prints the log, or only its lines about one kind of event.
fault_proxy_log() { # [<event>]
  local line
  while IFS= read -r line; do
    [[ $line != *'"event": "'"${1-}"* ]] || printf '%s\n' "$line"
  done <"$FAULT_PROXY_LOG"
}

# Prints what is wrong with what has happened, and fails if anything is. Also for one that has ended.
fault_proxy_check() { # [<option of history.py>...]
  python3 -SE "$_FAULT_PROXY_SOURCE/history.py" "$FAULT_PROXY_LOG" "$@" 3>&-
}

# For `eventually fault_proxy_has waiting 1`: how many there are of leased, waiting, hanging...
fault_proxy_has() { # <key> <count>
  local values
  values=$(fault_proxy_state "$1") || return
  [[ $2 == "$(printf '%s' "${values:+$values$'\n'}" | wc -l)" ]]
}

_fault_proxy_control() { # <action> [<argument>...]
  python3 -SE "$_FAULT_PROXY_SOURCE/control.py" "$_FAULT_PROXY_PORT_FILE" "$@" 3>&-
}
