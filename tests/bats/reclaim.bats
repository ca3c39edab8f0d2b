#!/usr/bin/env bats
# lease__use, lease__unuse, lease__marks and lease__answer as scripts use them, on the embedded pool.
# shellcheck disable=SC2016 # what stands in single quotes is for the scripts to expand
# shellcheck disable=SC2030,SC2031 # each test is a subshell, and means to be

bats_require_minimum_version 1.5.0

setup() {
  load helper
  use_own_state
  make_pool T 2
}

teardown() {
  end_own_state
}

run_script() {
  run --separate-stderr bash script
}

@test "a name in use is not taken by a reclaim, and one that isn't is" {
  script -euo pipefail <<'END'
trap 'printf "trapped %s\n" "$?"' EXIT
h=$(lease__acquire -t T -c 2 --scope=step --on-reclaim=release)
lease__use --handle="$h" --name=T--00
leasectl reclaim T --excess 1 --delay 0.1s -w 20s -q
lease__unuse --handle "$h" --name T--00
leasectl reclaim T --names T--00 --delay 0.1s -w 20s -q
lease__unuse --handle="$h" --name=T--00
lease__release --handle="$h"
END
  run_script
  assert_success
  assert_equal "$output" $'T--01\nT--00\ntrapped 0'
}

@test "a script answers for itself, and hears by 77 that a ready name can't be used" {
  script -euo pipefail <<'END'
h=$(lease__acquire -t T -c 2 --scope=step --on-reclaim=answer)
leasectl reclaim T --names T--00,T--01 --delay 0.1s -w 20s >taken 2>told &
until lease__marks --handle="$h" 2>/dev/null | grep -q T--01; do sleep 0.05; done
# The reclaim can neither free a lease nor take a mark off while it is stopped.
kill -STOP "$!"
lease__use --handle="$h" --name=T--01
lease__answer --handle="$h" --ready --names=T--01 || printf 'ready %s\n' "$?"
lease__answer --handle="$h" --keep --names T--01
lease__answer --handle="$h" --ready --names=T--00
f() { lease__use --handle="$h" --name=T--00 || printf 'use %s\n' "$?"; }
f
lease__marks --handle="$h" --json | python3 -c 'import json, sys; print(*(e["state"] for e in json.load(sys.stdin)))'
kill -CONT "$!"
wait "$!" || printf 'reclaim %s\n' "$?"
lease__cat --handle="$h"
lease__release --handle="$h" >/dev/null
END
  run_script
  assert_success
  assert_equal "$output" $'ready 77\nT--01\nT--00\nuse 77\nready keep\nreclaim 75\nT--01'
}

@test "they are there in child shells, and keep the script's options and variables" {
  script -euo pipefail <<'END'
readonly REPLY=mine name=mine h=$(lease__acquire -t T --scope=step)
shopt -s nocasematch
set -T
IFS=x
bash -c 'lease__use --handle="$1" --name=T--00 && lease__marks --handle="$1" && lease__unuse --handle="$1" --name=T--00' bash "$h"
lease__answer --handle="$h" --keep
printf '%s %s %s\n' "$REPLY" "$name" "$IFS"
END
  run_script
  assert_success
  assert_equal "$output" 'mine mine x'
  assert_equal "$stderr" $'leasectl: no reclaim asks for this handle\'s leases\nleasectl: no request waits for an answer; see: leasectl marks --handle H'
}

@test "an empty handle and a dry run hold nothing that could be asked for" {
  script -euo pipefail <<'END'
lease__use --handle= --name=
lease__answer --handle '' --ready
unset LEASECTL_BACKEND
lease__use --handle=LEASE_PROXY_SERVER_URL-not-set-dry-run-mode --name=x
lease__marks --handle=LEASE_PROXY_SERVER_URL-not-set-dry-run-mode
END
  run_script
  assert_success
  assert_equal "$output$stderr" ''
}

@test "wrong words are refused in a line" {
  local words
  for words in 'use --handle=h --names=x' 'marks --all' 'answer --handle' 'unuse x'; do
    script -u <<<"lease__$words"
    run_script
    ((status == 1 || status == 64))
    assert_equal "${#stderr_lines[@]}" 1
  done
  script -u <<<'lease__use --handle=nowhere --name=x'
  run_script
  assert_equal "$status" 66
}

@test "a device's name, with a colon, is used and shown as any other" {
  leasectl pool create D --names 192.168.1.17:5555 2>/dev/null
  script -euo pipefail <<'END2'
h=$(lease__acquire -t D --scope=step)
name=$(lease__cat --handle="$h")
lease__use --handle="$h" --name="$name"
lease__marks --handle="$h" 2>/dev/null
lease__release --handle="$h"
END2
  run_script
  assert_success
  assert_equal "$output" '192.168.1.17:5555 released'
}
