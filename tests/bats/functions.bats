#!/usr/bin/env bats
# What each function takes, prints and returns, on the embedded pool and in a dry run.
# shellcheck disable=SC2016 # what stands in single quotes is for the scripts to expand
# shellcheck disable=SC2030,SC2031 # each test is a subshell, and means to be

bats_require_minimum_version 1.5.0

setup() {
  load helper
  use_own_state
  export SHARED_DIR=$BATS_TEST_TMPDIR/shared
  mkdir "$SHARED_DIR"
}

teardown() {
  end_own_state
}

# Runs ./script; $output and $stderr are what it printed.
run_script() {
  run --separate-stderr env "PATH=${script_path:-$PATH}" bash script
}

assert_one_line_on_stderr() {
  assert_equal "${#stderr_lines[@]}" 1
}

dry_run() {
  unset LEASECTL_BACKEND
}

# Has the script find nothing but these commands.
use_path_of() { # <command>...
  local name
  mkdir bin
  for name; do
    ln -s "$(type -P "$name")" bin/
  done
  script_path=$PWD/bin
}

# ---- lease__acquire ----

@test "acquire prints the handle's path, without a newline, and nothing else" {
  make_pool T
  script -e -u -o pipefail <<<'lease__acquire --type=T >out; h=$(<out); printf "%s|" "$h" | cmp - <(cat out; printf "|"); printf "%s\n" "$h"; cat "$h"'
  run_script
  assert_success
  assert_line --index 0 --regexp "^$LEASECTL_STATE_DIR/handles/T-[a-zA-Z0-9]{6}\$"
  assert_line --index 1 T--00
  assert_equal "$stderr" ''
}

@test "acquire takes its options in every form" {
  local words
  make_pool T 30
  for words in '-t T' '--type T' '--type=T' '-t T -c 2' '-t T --count 2' '-t T --count=2' '--count=1 --type=T' \
    '-t T --scope=step' '-t T --scope step' '-t T --scope=test' '-t T --scope test' '-t T --scope=step --guard' '-q -t T' '-t T --quiet' '-t T --jitter=0s' '-t T --jitter 0m' '-t T --ttl=1h' '-t T --ttl 90' \
    '-t T --priority=-7' '-t T --priority 0' '-t T --start-jitter=0s' '-t T --on-reclaim=release' '-t T --label a=b --release-after 1h'; do
    script -e -u <<<"h=\$(lease__acquire $words); lease__cat --handle=\"\$h\" --pretty-format=csv"
    run_script
    assert_success
    [[ $words == *2* ]] && assert_output --regexp '^T--[0-9]+,T--[0-9]+$' || assert_output --regexp '^T--[0-9]+$'
  done
}

@test "scope test is the default: the names are listed in SHARED_DIR, and outlive the script" {
  make_pool T 2
  script <<<'h=$(lease__acquire -t T -c 2)'
  run_script
  assert_success
  assert_equal "$(sort "$SHARED_DIR/leases")" $'T--00\nT--01'
  holds T--00 T--01
}

@test "scope step: the script is the guard, also of what a subshell acquired" {
  make_pool T 2
  script -e <<'SCRIPT'
h=$(lease__acquire -t T --scope=step)
leasectl cat --handle "$h" --format json >json
[[ $(<json) == *"\"guard_pid\": $$,"* ]]
g=$( (lease__acquire -t T --scope=step))
leasectl cat --handle "$g" --format json >json
[[ $(<json) == *"\"guard_pid\": $$,"* ]]
SCRIPT
  run_script
  assert_success
  [[ ! -e $SHARED_DIR/leases ]]
  eventually holds
}

@test "acquire returns 2 for an unknown type, prints nothing and says it in one line" {
  make_pool T
  script <<<'h=$(lease__acquire --type=Tt); printf "%s<%s>\n" "$?" "$h"; lease__acquire --type=Tt --var=h; printf "%s<%s>\n" "$?" "$h"'
  run_script
  assert_output $'2<>\n2<>'
  assert_equal "${#stderr_lines[@]}" 2
}

@test "acquire of either of two types takes whichever is free first, and returns 2 where one is unknown" {
  make_pool T
  make_pool U
  script -e -u -o pipefail <<'SCRIPT'
lease__acquire -t T --var=first
h=$(lease__acquire -t T --type=U --count=01)
lease__cat --handle="$h"
printf ' %s\n' "${h##*/}"
set +e
lease__acquire --scope=step -q --type=U -t V --var=v
printf 'returned %s\n' "$?"
SCRIPT
  run_script
  assert_line --index 0 --regexp '^U--00 T-[A-Za-z0-9]{6}$'
  assert_line --index 1 'returned 2'
  script <<<'unset LEASECTL_BACKEND LEASE_PROXY_SERVER_URL; lease__acquire -t T -t U'
  run_script
  assert_output LEASE_PROXY_SERVER_URL-not-set-dry-run-mode
}

@test "acquire returns 1, not 2, while a file that the environment names can't be read" {
  local variable
  for variable in LEASECTL_CERT_FILE LEASECTL_CA_FILE SSL_CERT_FILE; do
    script <<<"export LEASECTL_BACKEND=etcds://127.0.0.1:9 $variable=/nowhere; lease__acquire --type=T"
    run_script
    assert_failure 1
    assert_equal "${#stderr_lines[@]}" 1
  done
}

@test "acquire returns 1 for what can't be meant, says it in one line, and leases nothing" {
  local words
  make_pool T
  for words in '' '-t' '--type' '--type=' '-t ""' '-t T -c' '-t T -c 1x' '-t T --count=-1' '-t T --count=' '-t T -c 1.5' \
    '-t T --scope=all' '-t T --scope=' '-t T --jitter=soon' '-t T --jitter' '-t T --jitter=-1m' '-t T --start-jitter=soon' '-t T --priority=101' '-t T --priority=' '-t T --priority=x' '-t T --ttl=soon' '-t T --ttl' '-t T --on-reclaim=maybe' '-t T --on-reclaim=' '-t T --unknown' \
    '-t T --unknown=1' '-t T --quiet=yes' '-t T extra' '-t T --var=1a' '-t T --var=' '-t T --var="a b"' '-t T --var="a[\$(touch pwned)]"' \
    '-t T --var=_lease__got' '-t T --store=maybe' '-t a/b' '-t ../T' '-t "a b"' '-t "\$(touch pwned)"' '-t "T
"' '-t T -t T' '-t T -t U -c 2' '-t T -t U -c all' '-t T -t ""' '-t T -t "a b"' '-t -T' "-t $(printf 'x%.0s' {1..300})" '-t T -c 2' '-t T -c 99999999999999999999'; do
    script <<<"lease__acquire $words"
    run_script
    assert_failure 1
    assert_output ''
    assert_one_line_on_stderr
  done
  [[ ! -e pwned ]]
  holds
}

@test "acquire passes a priority on, which its handle keeps" {
  make_pool T
  script <<<'h=$(lease__acquire -t T --priority=-7 --scope=step); leasectl cat "$h" --json'
  run_script
  assert_success
  assert_output --partial '"priority": -7'
}

@test "acquire with count all leases the whole pool" {
  make_pool T 3
  script -e -u <<<'lease__acquire -t T --count=all --scope=step --var=h; lease__cat --handle="$h"'
  run_script
  assert_output $'T--00\nT--01\nT--02'
}

@test "acquire with a count of 0 prints nothing and leases nothing" {
  make_pool T
  script -e <<<'h=$(lease__acquire -t T --count=0); g=$(lease__acquire -t T -c 00); v=x; lease__acquire -t T -c 0 --var=v; printf "<%s%s%s>\n" "$h" "$g" "$v"'
  run_script
  assert_output '<>'
  holds
}

@test "local h and an acquisition in one: the failure is seen, as bash sees it" {
  make_pool T
  script -e <<<'f() { local h; h=$(lease__acquire -t nope) || { printf "seen %s\n" "$?"; return; }; }; f'
  run_script
  assert_output 'seen 2'
}

@test "the older form prints names with commas; --store=true lists them, --store=false doesn't" {
  make_pool T 4
  script -e -u <<<'lease__acquire --type=T --count=2 --store=true; printf "\n"; lease__acquire --type T --store false'
  run_script
  assert_success
  assert_output --regexp $'^T--0.,T--0.\nT--0.$'
  assert_equal "$(line_count "$SHARED_DIR/leases")" 2
  assert_equal "$(held | sort)" "$(tr , '\n' <<<"$output" | sort)"
}

@test "without SHARED_DIR, scope test fails and leases nothing" {
  make_pool T
  unset SHARED_DIR
  script <<<'lease__acquire -t T'
  run_script
  assert_failure 1
  assert_output ''
  assert_one_line_on_stderr
  holds
}

@test "when the handle can't be handed over, the lease goes back" {
  make_pool T
  script <<'SCRIPT'
readonly h=mine
lease__acquire -t T --var=h 2>/dev/null; printf '%s %s\n' "$?" "$h"
lease__acquire -t T >/dev/full 2>/dev/null; printf '%s\n' "$?"
SCRIPT
  run_script
  assert_output $'1 mine\n1'
  holds
}

@test "a reader that has gone away makes acquire give the lease back" {
  make_pool T
  script <<<'mkfifo pipe; exec 4<>pipe 5>pipe; exec 4<&-; trap "" PIPE; lease__acquire -t T >&5; printf "%s\n" "$?"'
  run_script
  assert_output 1
  holds
}

# ---- lease__release ----

@test "release prints the names with commas, and what is released already is no error" {
  make_pool T 3
  script -e -u -o pipefail <<'SCRIPT'
h=$(lease__acquire -t T -c 3)
lease__release --handle="$h"
printf 'again:\n'
lease__release --handle "$h"
SCRIPT
  run_script
  assert_success
  assert_output $'T--00,T--01,T--02 released\nagain:'
  assert_equal "$stderr" ''
  assert_equal "$(line_count "$SHARED_DIR/leases")" 0
}

@test "release of an empty handle, or one that is gone, succeeds" {
  script -e <<<'lease__release --handle=; lease__release --handle ""; lease__release --handle=/nowhere/T-123456; lease__release --handle=T-123456'
  run_script
  assert_success
  assert_output ''
}

@test "release by names, in every form" {
  make_pool T 5
  script -e <<'SCRIPT'
h=$(lease__acquire -t T -c 5)
lease__release -n T--00
lease__release --names T--01
lease__release --names=T--02,T--03
lease__release --name=T--04
lease__release --names=T--04
SCRIPT
  run_script
  assert_success
  assert_output $'T--00 released\nT--01 released\nT--02,T--03 released\nT--04 released'
}

@test "release of scope test, and its older name, give back all that is listed" {
  make_pool T 3
  script -e <<'SCRIPT'
h=$(lease__acquire -t T -c 2)
lease__release --scope=test
lease__release --scope test
h=$(lease__acquire -t T)
lease__release_stored
SCRIPT
  run_script
  assert_success
  assert_output $'T--00,T--01 released\nT--02 released'
  holds
}

@test "release of a handle that was copied elsewhere" {
  make_pool T 2
  script -e <<<'h=$(lease__acquire -t T -c 2); cp "$h" copy; touch copy.lock; mapfile -t names <copy; printf "%s\n" "${names[@]}"; lease__release --handle="$PWD/copy"; lease__release --handle=copy'
  run_script
  assert_success
  assert_output $'T--00\nT--01\nT--00,T--01 released'
  holds
}

@test "a copied handle with anything but names is not printed" {
  printf 'T--00\n\033]0;x\007\n' >copy
  script <<<'lease__cat --handle="$PWD/copy"; printf "%s\n" "$?"; lease__cat --handle="$PWD/copy" --format=csv'
  run_script
  assert_failure 1
  assert_output 1
  assert_equal "${stderr_lines[0]}" "lease__cat: $PWD/copy is not a handle: it contains something other than resource names"
  assert_equal "${#stderr_lines[@]}" 2
}

@test "a line that comes in pieces is read whole" {
  mkdir -p bin
  cat >bin/leasectl <<'STUB'
#!/bin/bash
printf '/tmp'
sleep 1.2
printf '/handle\n'
STUB
  chmod +x bin/leasectl
  script <<'SCRIPT'
PATH=$PWD/bin:$PATH
h=$(lease__acquire -t T)
lease__acquire -t T --var=g
printf '%s %s\n' "$h" "$g"
SCRIPT
  run_script
  assert_success
  assert_output '/tmp/handle /tmp/handle'
}

@test "a delayed release returns at once, in the background too, and happens later" {
  make_pool T 2
  script -e <<'SCRIPT'
h=$(lease__acquire -t T)
g=$(lease__acquire -t T)
lease__release --delay=1s --handle="$h"
lease__release --delay=0.9s-1s --handle="$g" &
wait
lease__cat --handle="$h"
SCRIPT
  run_script
  assert_success
  assert_output 'T--00'
  eventually holds
}

@test "release returns 1 for what can't be meant, says it in one line, and releases nothing" {
  local words
  make_pool T
  script <<<'lease__acquire -t T >handle'
  run_script
  for words in '' '--handle' '--names=' '-n' '--scope=step' '--scope=' '--handle=x --names=y' '--handle=x --scope=test' \
    '--handle=x --unknown' 'x' '--handle="$(<handle)" --delay=20min' '--handle="$(<handle)" --delay=-1' \
    '--handle="$(<handle)" --delay=18m-' '--handle="$(<handle)" --delay=22m-18m' \
    '--names=a/b' '--names=T--99' '--names="\$(touch pwned)"' '--names="
"'; do
    script <<<"lease__release $words"
    run_script
    assert_failure 1
    assert_output ''
    assert_one_line_on_stderr
  done
  [[ ! -e pwned ]]
  holds T--00
}

# ---- lease__cat ----

@test "cat prints names a line or with commas, with a newline only if pretty, and returns 0" {
  make_pool T 2
  script -e -u -o pipefail <<'SCRIPT'
h=$(lease__acquire -t T -c 2)
lease__cat --handle="$h"; printf '|\n'
lease__cat --handle "$h" --format plain; printf '|\n'
lease__cat --handle="$h" --format=csv; printf '|\n'
lease__cat --handle="$h" --pretty-format=csv; printf '|\n'
lease__release --handle="$h" >/dev/null
lease__cat --handle="$h"; lease__cat --handle="$h" --pretty-format=csv; printf '|\n'
SCRIPT
  run_script
  assert_success
  assert_output $'T--00\nT--01|\nT--00\nT--01|\nT--00,T--01|\nT--00,T--01\n|\n|'
}

@test "cat of a missing file, a folder or nothing prints nothing and returns 0" {
  script -e -u <<<'lease__cat --handle=/nowhere; lease__cat --handle=/tmp --format=csv; lease__cat --handle=; lease__cat'
  run_script
  assert_success
  assert_output ''
  assert_equal "$stderr" ''
}

@test "cat returns 1 for a handle that isn't ours to see" {
  local -a as_another=()
  mkdir theirs
  printf T--00 >theirs/H
  if ((EUID == 0)); then
    as_another=(setpriv --reuid 65534 --clear-groups)
    chmod 700 theirs
  else
    chmod 0 theirs
  fi
  local functions
  functions=$(leasectl init bash)
  run --separate-stderr "${as_another[@]}" bash -c "$functions"'
lease__cat --handle="$1"' - "$PWD/theirs/H"
  chmod 700 theirs
  assert_failure 1
  assert_output ''
  assert_one_line_on_stderr
}

@test "cat returns 1 for what can't be meant" {
  local words
  for words in '--handle' '--handle=x --format=xml' '--handle=x --pretty-format=' '--unknown'; do
    script <<<"lease__cat $words"
    run_script
    assert_failure 1
    assert_output ''
    assert_one_line_on_stderr
  done
}

# ---- lease__install_lease_eligible ----

@test "acquire takes only what is so, and property tells what it is" {
  leasectl pool create T --names a-us,b-eu --property region=us --property 'text=two  words;$(id)' 2>/dev/null
  leasectl pool set T --names b-eu --property region=eu 2>/dev/null
  script -e -u -o pipefail <<'.'
h=$(lease__acquire -t T --where=region=eu --where 'region!=us')
lease__cat --handle="$h"
printf '|'
lease__property --handle="$h" region
printf '|'
lease__property text --handle "$h"
printf '|'
both=$(lease__acquire -t T --where region=us) && lease__property --handle="$both" region
.
  run_script
  assert_success
  assert_output 'b-eu|eu|two  words;$(id)|us'
  assert_equal "$stderr" ''
}

@test "property returns 1 where there is none, says it in one line, and prints nothing" {
  local words
  make_pool T
  # shellcheck disable=SC2034 # a script's own variable
  h=$(leasectl acquire -t T)
  for words in "--handle=$h region" "--handle=/nowhere region" "--handle=$h" "region" "--handle=$h a b" "--handle=$h ''" "--handle=$h 'a b'" \
    "--handle=$h -x"; do
    script -u <<<"lease__property $words"
    run_script
    assert_failure 1
    assert_output ''
    assert_one_line_on_stderr
  done
  dry_run
  script -u <<<"lease__property --handle=$h region"
  run_script
  assert_failure 1
  assert_equal "$stderr" 'lease__property: dry run: nothing is leased, so nothing has a region'
}

@test "install leases are for the profiles that begin with openshift-org-" {
  script -e -u <<'SCRIPT'
shopt -s nocasematch
for CLUSTER_PROFILE_SET_NAME in openshift-org-aws openshift-org-x openshift-org- openshift-org Xopenshift-org-a OPENSHIFT-ORG-a ''; do
  lease__install_lease_eligible && printf '%s\n' "$CLUSTER_PROFILE_SET_NAME"
done
unset CLUSTER_PROFILE_SET_NAME
lease__install_lease_eligible || printf 'unset\n'
SCRIPT
  run_script
  assert_output $'openshift-org-aws\nopenshift-org-x\nunset'
}

@test "no install lease is eligible where INSTALL_LEASE_ENABLED turns them off" {
  script -e -u <<'SCRIPT'
CLUSTER_PROFILE_SET_NAME=openshift-org-aws
for INSTALL_LEASE_ENABLED in true yes 1 false FALSE No 0 ''; do
  lease__install_lease_eligible && printf '%s\n' "$INSTALL_LEASE_ENABLED"
done
unset INSTALL_LEASE_ENABLED
lease__install_lease_eligible && printf 'unset\n'
SCRIPT
  run_script
  assert_output $'true\nyes\n1\nunset'
}

# ---- --wait and --optional ----

@test "a wait ends after --wait, and --optional continues with an empty handle" {
  make_pool T
  local how
  leasectl acquire -t T >/dev/null
  for how in '--wait=0' '-w 0' '--wait 0.2s' '-w 1ms'; do
    script <<<"lease__acquire -q -t T $how; printf '%s' \"\$?\""
    run_script
    [[ $how != *ms ]] || assert_regex "$stderr" 'invalid duration'
    assert_output 1
  done
  script -e -u <<'SCRIPT'
lease__acquire -q -t T --wait=0 --optional --var=h
printf '<%s>' "$h"
lease__guard "$h"
lease__release --handle="$h"
g=$(lease__acquire -q -t T --optional -w 0)
printf '<%s>' "$g"
SCRIPT
  run_script
  assert_success
  assert_output '<><>'
  script <<<'lease__acquire -t T --optional=yes'
  run_script
  assert_failure 1
}

@test "reacquire ends its wait after --wait, and --optional keeps the handle for another try" {
  make_pool T
  script -e -u <<'SCRIPT'
h=$(lease__acquire -t T)
leasectl pool cordon --names T--00 2>/dev/null
lease__reacquire --handle="$h" --wait=0.1s && exit 9
lease__reacquire --handle="$h" -w 0.1s --optional --var=g
[[ $g == "$h" ]]
leasectl pool uncordon --names T--00 2>/dev/null
lease__reacquire --handle="$h" --wait=1m --optional >/dev/null
lease__cat --handle="$h"
SCRIPT
  run_script
  assert_success
  assert_output T--00
}

@test "an optional lease is no reason to fail where there is no leasectl" {
  use_path_of bash
  script -e -u <<<'lease__acquire -t T --optional --var=h; printf "<%s>" "$h"'
  run_script
  assert_success
  assert_output '<>'
}

@test "a script may have a readonly REPLY" {
  make_pool T 2
  script -e -u <<'SCRIPT'
readonly REPLY=mine
lease__acquire -t T --var=h
g=$(lease__acquire -t T)
lease__trap : EXIT
lease__cat --handle="$h" --pretty-format=csv
lease__cat --handle="$g"
SCRIPT
  run_script
  assert_success
  assert_output $'T--00\nT--01'
  assert_equal "$stderr" ''
}

# ---- lease__reacquire ----

@test "reacquire gives back what is held and takes the same again under the same handle" {
  make_pool T 2
  script -e -u <<'SCRIPT'
lease__acquire -t T --scope=step --var=h
[[ $(lease__reacquire --handle="$h") == "$h" ]]
lease__cat --handle="$h" --pretty-format=csv
lease__release --handle="$h"
g=''
lease__reacquire --handle "$h" --var=g
[[ $g == "$h" ]]
lease__release --handle="$g"
SCRIPT
  run_script
  assert_success
  assert_output $'T--01\nT--01 released\nT--00 released'
}

@test "reacquire returns 1 for what can't be meant, 2 for a handle that is gone" {
  script <<'SCRIPT'
lease__reacquire; printf '%s\n' "$?"
lease__reacquire --handle=; printf '%s\n' "$?"
lease__reacquire --handle; printf '%s\n' "$?"
lease__reacquire --handle=x --var=1; printf '%s\n' "$?"
lease__reacquire --handle=T-123456; printf '%s\n' "$?"
SCRIPT
  run_script
  assert_output $'1\n1\n1\n1\n2'
  assert_equal "${#stderr_lines[@]}" 5
}

# ---- lease__guard ----

@test "a guarded handle is released when the script ends, after its own EXIT trap" {
  local ending
  make_pool T
  for ending in 'exit 3' 'false' 'kill -TERM $$' 'kill -INT $$'; do
    script -e <<SCRIPT
trap 'printf "earlier: "; lease__cat --handle="\$h" --pretty-format=csv' EXIT
lease__acquire -t T --var=h
lease__guard "\$h"
$ending
SCRIPT
    run report_end bash script
    assert_line --index 0 'earlier: T--00'
    holds
  done
}

@test "a guarded handle that was released before is not released from its next holder" {
  make_pool T
  script -e <<'SCRIPT'
h=$(lease__acquire -t T)
lease__guard "$h"
lease__release --handle="$h"
g=$(lease__acquire -t T)
SCRIPT
  run_script
  assert_success
  holds T--00
}

@test "guarded handles are released, and the status is kept, where nobody reads stderr any more" {
  make_pool T 2
  script -e <<'SCRIPT'
lease__acquire -t T --var=h
lease__guard "$h"
lease__acquire -t T --var=g
lease__guard "$g"
exec 2> >(:)
wait "$!"
exit 4
SCRIPT
  run report_end bash script
  assert_output 'exit 4'
  holds
}

@test "guarding an empty handle is nothing, and no handle at all is an error" {
  script <<<'trap -p >before; lease__guard ""; printf "%s\n" "$?"; trap -p | cmp - before; lease__guard; printf "%s\n" "$?"'
  run_script
  assert_output $'0\n1'
  assert_one_line_on_stderr
}

@test "a guarded handle may have any name" {
  script <<<'lease__guard "a b'\''\"; touch pwned; \$(touch pwned)
* \\"'
  run_script
  assert_success
  assert_equal "${#stderr_lines[@]}" 1
  [[ ! -e pwned ]]
}

@test "a guard doesn't wait for ever for a release that hangs" {
  mkdir bin
  printf '#!/bin/bash\nsleep 60\n' >bin/leasectl
  printf '#!/bin/bash\n[[ $* == "-k 5 35 leasectl release --handle=T-123456" ]] && exec %s 1 "${@:4}"\n' "$(type -P timeout)" >bin/timeout
  chmod +x bin/*
  PATH=$PWD/bin:$PATH
  script <<<'lease__guard T-123456; exit 3'
  run report_end bash script
  assert_output 'exit 3'
}

# ---- dry run ----

@test "dry run: nothing is needed and nothing is leased, and what is said is as ever" {
  dry_run
  use_path_of bash
  script -e -u -o pipefail <<'SCRIPT'
lease__acquire -q --type=T --scope=step; printf '|\n'
h=$(lease__acquire -t T -c 2 --quiet)
lease__acquire -t T -q --var=g
[[ $g == "$h" ]]
lease__cat --handle="$h" --format=csv
lease__guard "$h"
lease__reacquire --handle="$h"; printf '|\n'
lease__release --handle="$h"
lease__release --delay=20m --handle="$h"
lease__release --names=A,B
lease__release --scope=test
lease__release --handle=
SCRIPT
  run_script
  assert_success
  local said='LEASE_PROXY_SERVER_URL not set, dry run mode: it would release'
  local dry=LEASE_PROXY_SERVER_URL-not-set-dry-run-mode
  assert_output "$dry|
$dry|
$said handle=$dry
$said handle=$dry
$said names=A,B
$said scope=test"
  assert_equal "$stderr" ''
}

@test "dry run: acquire says on stderr that it is one, and what would choose a backend" {
  local how
  dry_run
  for how in 'printf "%s" "$(lease__acquire --type=T)"' 'lease__acquire --type=T --var=h; printf "%s" "$h"'; do
    script -e -u <<<"$how"
    run_script
    assert_success
    assert_output LEASE_PROXY_SERVER_URL-not-set-dry-run-mode
    assert_one_line_on_stderr
    assert_regex "$stderr" 'dry run.* LEASE_PROXY_SERVER_URL.* LEASECTL_BACKEND .*this machine.* LEASECTL_BACKEND=local:'
  done
}

@test "dry run: what can't be meant is refused all the same" {
  local words
  dry_run
  for words in 'lease__acquire' 'lease__acquire -t' 'lease__acquire -t T --scope=x' 'lease__acquire -t T --var=1' \
    'lease__release' 'lease__release --handle' 'lease__release --names=x --handle=y' 'lease__reacquire' 'lease__guard'; do
    script <<<"$words"
    run_script
    assert_failure 1
    assert_output ''
    assert_one_line_on_stderr
  done
}

@test "dry run: an empty address counts as none" {
  export LEASECTL_BACKEND='' LEASE_PROXY_SERVER_URL=''
  script <<<'lease__acquire -t T'
  run_script
  assert_output LEASE_PROXY_SERVER_URL-not-set-dry-run-mode
}

# ---- where leasectl comes from ----

@test "without leasectl: one line, 1" {
  use_path_of bash
  local words
  for words in 'lease__acquire -t T' 'lease__release --handle=x' 'lease__reacquire --handle=x'; do
    script <<<"$words"
    run_script
    assert_failure 1
    assert_output ''
    assert_one_line_on_stderr
  done
}

@test "leasectl.pyz beside the sourced file is found, from a child too, and from another folder" {
  use_path_of bash python3 mkfifo rm
  mkdir 'mounted here' elsewhere
  cp "$FUNCTIONS" 'mounted here/client.sh'
  printf 'import sys\nprint(" ".join(sys.argv[1:3]))\n' >'mounted here/leasectl.pyz'
  local path
  for path in "$PWD/mounted here/client.sh" 'mounted here/client.sh' './mounted here/client.sh'; do
    local -x FUNCTIONS=$path
    script <<<'cd elsewhere; lease__acquire -t T --scope=step; bash -c "lease__release --handle=x"'
    run_script
    assert_success
    assert_output 'acquire --type=Trelease --handle=x released'
  done
}

@test "leasectl.pyz is found beside a link to the functions too, as a ConfigMap is mounted" {
  use_path_of bash python3 mkfifo rm
  mkdir -p mounted/..2026 elsewhere
  cp "$FUNCTIONS" mounted/..2026/client.sh
  printf 'import sys\nprint(" ".join(sys.argv[1:3]))\n' >mounted/..2026/leasectl.pyz
  ln -s ..2026 mounted/..data
  ln -s ..data/client.sh ..data/leasectl.pyz mounted/
  local -x FUNCTIONS=mounted/client.sh
  script <<<'cd elsewhere; lease__acquire -t T --scope=step'
  run_script
  assert_success
  assert_output 'acquire --type=T'
  # It is the link's own folder that counts.
  mkdir linked
  ln -s ../mounted/client.sh linked/
  FUNCTIONS=linked/client.sh
  run_script
  assert_failure 1
  cp mounted/leasectl.pyz linked/
  run_script
  assert_success
  assert_output 'acquire --type=T'
}

@test "leasectl.pyz without python3: one line, 1" {
  use_path_of bash
  cp "$FUNCTIONS" client.sh
  : >leasectl.pyz
  local -x FUNCTIONS=$PWD/client.sh
  script <<<'lease__acquire -t T'
  run_script
  assert_failure 1
  assert_output ''
  assert_one_line_on_stderr
  [[ $stderr == *python3* ]]
}

# ---- whatever the script is like ----

@test "the script's options, IFS and variables don't matter, and are left as they were" {
  local options
  make_pool T 2
  for options in '+e' '-e -u -o pipefail' '-f' '-C' '-a' '-E -e' '-T' '-m' '-o posix' '-e -u -o posix'; do
    # shellcheck disable=SC2086 # several words
    script $options <<'SCRIPT'
shopt -s nocasematch nullglob failglob extglob dotglob xpg_echo lastpipe 2>/dev/null
shopt -s inherit_errexit localvar_inherit 2>/dev/null || :
IFS='/-T0,'
readonly type=1 count=2 scope=3 name=4 handle=5 h=6 i=7 out=8 code=9
CDPATH=/:/tmp
state() { printf '%s\n' "$-"; set -o; shopt -p || :; declare -p IFS type CDPATH; trap -p; }
state >|before
source "$FUNCTIONS"
x=$(lease__acquire --type=T -c 2)
lease__cat --handle="$x" --pretty-format=csv
lease__release --handle="$x"
lease__acquire --type=T --scope=step --var=x
lease__reacquire --handle="$x" --var=x
lease__guard "$x"
lease__release --names=T--00,T--01 >/dev/null
lease__untrap "_lease__guard_release $x" EXIT
state >|after
SCRIPT
    run_script
    assert_equal "$stderr" ''
    assert_success
    assert_output $'T--00,T--01\nT--00,T--01 released'
    run diff before after
    assert_output ''
  done
}

@test "aliases and functions of the script's are not called" {
  make_pool T
  script <<'SCRIPT'
shopt -s expand_aliases
for word in local printf read exec eval unset kill trap source return shift mapfile wait command builtin export; do
  alias "$word=called $word"
done
called() { \printf 'alias %s\n' "$1"; }
leasectl() { \printf 'function leasectl\n'; }
\source "$FUNCTIONS"
\shopt -p expand_aliases
lease__acquire --type=T --scope=step --var=h
lease__release --handle="$h"
SCRIPT
  run_script
  assert_output $'shopt -s expand_aliases\nT--00 released'
  assert_equal "$stderr" ''
}

@test "functions of the names of commands and builtins are not called" {
  make_pool T
  script <<'SCRIPT'
for word in rm mkfifo timeout printf read mapfile eval exec wait unset kill declare export set type trap test; do
  builtin eval "$word() { builtin printf 'function $word\n'; }"
done
lease__acquire --type=T --scope=step --var=h
[[ $(lease__cat --handle="$h") == T--00 ]]
lease__release --handle="$h"
h=$(lease__acquire --type=T --scope=step)
lease__guard "$h"
SCRIPT
  run --separate-stderr report_end bash script
  assert_output $'T--00 released\nexit 0'
  assert_equal "$stderr" 'T--00 released'
  assert_equal "$(ls -A "$TMPDIR")" ''
}

@test "with few descriptors acquire --var fails, or has a lease, and never hangs" {
  local few
  make_pool T
  for few in 9 11 13; do
    script <<<"ulimit -n $few; if lease__acquire -q -t T --scope=step --var=h; then lease__cat --handle=\"\$h\" --pretty-format=csv; else printf 'none<%s>\\n' \"\${h-}\"; fi"
    run report_end bash script
    assert_output --regexp $'(T--00|none<>)\nexit 0$'
    eventually holds
  done
}

@test "under set -T a function of these is one function for a RETURN trap" {
  make_pool T
  script -T <<'SCRIPT'
trap 'printf . >>"$LEASECTL_STATE_DIR.$stage"' RETURN
stage=acquire; lease__acquire -t T --scope=step --var=h
stage=cat; lease__cat --handle="$h" >/dev/null
stage=guard; lease__guard "$h"
stage=release; lease__release --handle="$h" >/dev/null
stage=exit
SCRIPT
  run_script
  assert_success
  local stage
  for stage in acquire cat guard release; do
    assert_equal "$stage $(<"$LEASECTL_STATE_DIR.$stage")" "$stage ."
  done
  assert_equal "$(<"$LEASECTL_STATE_DIR.exit")" ....
}

@test "DEBUG, ERR and RETURN traps of the script's do no harm, inherited or not" {
  local options
  make_pool T
  for options in '-e' '-e -E' '-e -T' '-e -E -T'; do
    # shellcheck disable=SC2086 # several words
    script $options <<'SCRIPT'
trap 'printf "error\n"' ERR
trap 'printf "debug\n" >>debug' DEBUG
trap 'printf "return\n" >>return' RETURN
h=$(lease__acquire --type=T)
lease__release --handle="$h"
lease__acquire --type=T --var=h
lease__release --handle="$h"
lease__release --handle="$h"
lease__acquire --type=nope || printf 'returned %s\n' "$?"
trap - ERR
SCRIPT
    run_script
    assert_success
    assert_output $'T--00 released\nT--00 released\nreturned 2'
  done
}

@test "in a folder that was removed, and under SHELL=/bin/sh" {
  make_pool T
  mkdir gone
  script -e -u <<<'cd gone; rmdir ../gone; export SHELL=/bin/sh; h=$(lease__acquire -t T --scope=step); lease__release --handle="$h"; lease__acquire -t T --var=h; lease__release --handle="$h"'
  run --separate-stderr bash "$PWD/script"
  assert_success
  assert_output $'T--00 released\nT--00 released'
}

@test "where no pipe can be made, acquire works all the same" {
  make_pool T
  script -e <<<'mkfifo() { return 1; }; lease__acquire -t T --var=h; lease__release --handle="$h"; h=$(lease__acquire -t T); lease__release --handle="$h"'
  run_script
  assert_success
  assert_output $'T--00 released\nT--00 released'
}

@test "a child script has the functions, without sourcing them" {
  make_pool T
  script -e -u <<<'bash -e -u -o pipefail -c "h=\$(lease__acquire -t T --scope=step); lease__guard \"\$h\"; lease__cat --handle=\"\$h\" --pretty-format=csv"'
  run_script
  assert_success
  assert_output 'T--00'
  holds
}

@test "nothing is left in the temporary folder" {
  make_pool T
  script -e <<<'h=$(lease__acquire -t T --scope=step); lease__release --handle="$h"; lease__acquire -t T --var=h; lease__acquire -t nope --var=g || :; ls -A "$TMPDIR"'
  run_script
  assert_output 'T--00 released'
}
