#!/usr/bin/env bats
# The install loop end to end: scripts/install-cluster.sh with a stand-in for openshift-install, in
# both forms, and whatever happens to it.

bats_require_minimum_version 1.11.0

readonly TYPE=openshift-org-azure--azure4--install-quota-slice

setup() {
  load helper
  use_own_state
  export SHARED_DIR=$BATS_TEST_TMPDIR/shared CLUSTER_PROFILE_SET_NAME=openshift-org-azure CLUSTER_PROFILE_NAME=azure4
  export INSTALLER_BINARY=$BATS_TEST_TMPDIR/openshift-install INSTALL_LEASE_RELEASE_AFTER=20m
  mkdir "$SHARED_DIR"
  printf '0\n' >attempt
  write_installer
}

teardown() {
  end_own_state
}

# The stand-in: writes down what it sees, works until the file go.<attempt> exists, and exits with
# the code of its attempt in $CODES. A signal makes it tidy up for a moment, and write that down.
write_installer() {
  cat >openshift-install <<'INSTALLER'
#!/usr/bin/env bash
set -eu
trap 'sleep 0.2; printf "end\n" >>installer.log; exit 130' INT TERM
read -r attempt <attempt
attempt=$((attempt + 1))
printf '%s\n' "$attempt" >attempt
printf '%s\n' "$$" >installer.pid
printf 'start %s\n' "$*" >>installer.log
if [[ ${SEE_LEASE-} ]]; then
  leasectl status --json >>status
fi
: >"started.$attempt"
until [[ -e go.$attempt ]]; do
  sleep 0.02
done
printf 'end\n' >>installer.log
read -r -a codes <<<"$CODES"
exit "${codes[attempt - 1]}"
INSTALLER
  chmod +x openshift-install
}

# Starts the script in one of its forms; its stdout and how it ended are in the file `end`, once the
# last who can write to it has closed it.
start_install() { # functions|run
  local words=(bash "$ROOT/scripts/install-cluster.sh")
  [[ $1 == functions ]] || words+=(--run)
  rm -f pid
  # shellcheck disable=SC2016 # the inner bash expands it
  (report_end bash -c 'printf "%s\n" "$$" >pid.new; mv pid.new pid; exec "$@"' bash "${words[@]}" --dir d 2>errors | cat >end.new && mv end.new end) 3>&- &
  installation=$!
  eventually test -e pid
  script=$(<pid)
}

assert_pool_is_free() {
  run leasectl status -t "$TYPE"
  assert_line --regexp "^$TYPE +[12] +[12] +0 +0\$"
}

lines_of() { # <file>
  [[ ! -e $1 ]] || printf '%s\n' "$(<"$1")"
}

# ---- to its own end ----

three_attempts() { # functions|run
  make_pool "$TYPE" 2
  : >go.1
  : >go.2
  CODES='4 4 0' SEE_LEASE=yes INSTALL_LEASE_RELEASE_AFTER=10s start_install "$1"
  eventually test -e started.3
  # The last installer still runs when its lease goes back.
  eventually holds
  : >go.3
  wait "$installation"
  assert_equal "$(<end)" 'exit 0'
  assert_equal "$(<installer.log)" $'start create cluster --dir d\nend\nstart create cluster --dir d\nend\nstart create cluster --dir d\nend'
  assert_equal "$(<"$SHARED_DIR/install-status.txt")" 0
  # Each had one lease, a new one each time.
  assert_equal "$(grep -o '"held": [0-9]*' status)" $'"held": 1\n"held": 1\n"held": 1'
  assert_equal "$(grep -oE '"grant": [0-9]+' status)" $'"grant": 1\n"grant": 2\n"grant": 3'
  assert_pool_is_free
}

status_of_the_installer() { # functions|run
  local codes
  make_pool "$TYPE"
  for attempt in 1 2 3 4 5; do
    : >"go.$attempt"
  done
  for codes in '0' '3' '4 3' '4 4 4 4 4'; do
    printf '0\n' >attempt
    rm -f "$SHARED_DIR/install-status.txt"
    CODES=$codes start_install "$1"
    wait "$installation"
    assert_equal "$(<end)" "exit ${codes##* }"
    assert_equal "$(<attempt)" "$(wc -w <<<"$codes")"
    assert_equal "$(<"$SHARED_DIR/install-status.txt")" "${codes##* }"
    assert_pool_is_free
  done
}

without_a_lease() { # functions|run
  # There is no such pool.
  : >go.1
  CODES=3 start_install "$1"
  wait "$installation"
  assert_equal "$(<end)" 'exit 3'
  # The state directory can't be used.
  if [[ $1 == functions ]]; then
    printf '0\n' >attempt
    LEASECTL_STATE_DIR=/dev/null CODES=3 start_install "$1"
    wait "$installation"
    assert_equal "$(<end)" 'exit 3'
  fi
  # A cluster profile without install leases.
  printf '0\n' >attempt
  CLUSTER_PROFILE_SET_NAME=other CODES=3 start_install "$1"
  wait "$installation"
  assert_equal "$(<end)" 'exit 3'
  assert_equal "$(<errors)" ''
  # It is switched off.
  local off
  make_pool "$TYPE"
  for off in false No 0 ''; do
    printf '0\n' >attempt
    INSTALL_LEASE_ENABLED=$off CODES=3 SEE_LEASE=yes start_install "$1"
    wait "$installation"
    assert_equal "$(<end)" 'exit 3'
  done
  assert_equal "$(grep -o '"held": [0-9]*' status | sort -u)" '"held": 0'
  assert_equal "$(<errors)" ''
  # No Bash functions.
  printf '0\n' >attempt
  LEASE_PROXY_CLIENT_SH=/nowhere CODES=3 start_install "$1"
  wait "$installation"
  assert_equal "$(<end)" 'exit 3'
}

# ---- signals ----

# Sends the signals once the moment has come, and looks at what is left. After the installer's end
# nothing is leased, the step's own trap has run once, and a reader of its stdout is at the end.
signalled() { # functions|run <signals> <moment>
  local other='' signal
  make_pool "$TYPE"
  : >go.1
  : >go.2
  case $3 in
    waiting)
      other=$(leasectl acquire -t "$TYPE")
      ;;
    first) rm go.1 ;;
    second) rm go.2 ;;
  esac
  export CODES='4 4 0'
  [[ $3 != released ]] || INSTALL_LEASE_RELEASE_AFTER=0.3s
  start_install "$1"
  case $3 in
    waiting) eventually someone_waits ;;
    first) eventually test -e started.1 ;;
    second) eventually test -e started.2 ;;
    third) eventually test -e started.3 ;;
    released)
      eventually test -e started.3
      eventually holds
      ;;
    *)
      # From the step's first trap on, anywhere.
      eventually test -e started.1
      sleep "$3"
      ;;
  esac
  for signal in $2; do
    kill -"$signal" "$script" 2>/dev/null || :
    sleep 0.05
  done
  wait "$installation"
  [[ $(<end) =~ ^signal\ (${2/ /|})$ ]]
  [[ $(<"$SHARED_DIR/install-status.txt") =~ ^SIG(${2/ /|})$ ]]
  # The installer has ended before.
  [[ ! $SHARED_DIR/install-status.txt -ot installer.log ]]
  [[ ! $other ]] || {
    nobody_waits
    leasectl release --handle "$other" >/dev/null
  }
  eventually holds
  assert_pool_is_free
}

# ---- KILL ----

killed() { # functions|run
  make_pool "$TYPE"
  CODES=0 start_install "$1"
  eventually test -e started.1
  holds "$TYPE--00"
  kill -KILL "$script"
  if [[ $1 == run ]]; then
    # The lease follows the installer.
    sleep 0.3
    holds "$TYPE--00"
    : >go.1
  fi
  eventually holds
  : >go.1
  wait "$installation"
}

for form in functions run; do
  bats_test_function --description "$form: attempts that exit with 4, 4, 0 have a new lease each, one at a time" -- three_attempts "$form"
  bats_test_function --description "$form: the exit status is the installer's, after 5 attempts at most" -- status_of_the_installer "$form"
  bats_test_function --description "$form: without a lease the installer runs all the same" -- without_a_lease "$form"
  bats_test_function --description "$form: KILL of the script" -- killed "$form"
  for signals in TERM INT 'INT TERM'; do
    # Who heeds INT as TERM at three moments does so at the others.
    moments=(waiting first third)
    [[ $signals == INT ]] || moments+=(second released 0.02 0.1)
    for moment in "${moments[@]}"; do
      bats_test_function --description "$form: $signals at the moment \"$moment\" leaves nothing leased" -- \
        signalled "$form" "$signals" "$moment"
    done
  done
done

@test "both forms call the installer with the same words" {
  : >go.1
  CODES=0 start_install run
  wait "$installation"
  cp installer.log with_run
  rm installer.log
  printf '0\n' >attempt
  CODES=0 start_install functions
  wait "$installation"
  cmp installer.log with_run
}

@test "where no backend is named both forms lease nothing, and try again all the same" {
  local form
  make_pool "$TYPE"
  unset LEASECTL_BACKEND LEASE_PROXY_SERVER_URL
  : >go.1
  : >go.2
  for form in functions run; do
    printf '0\n' >attempt
    CODES='4 3' SEE_LEASE=yes start_install "$form"
    wait "$installation"
    assert_equal "$(tail -n 1 end)" 'exit 3'
    assert_equal "$(<attempt)" 2
    assert_equal "$(grep -c 'dry run: no lease is taken' errors)" 1
  done
  assert_equal "$(grep -o '"held": [0-9]*' status | sort -u)" '"held": 0'
}
