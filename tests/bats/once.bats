#!/usr/bin/env bats
# lease__once as scripts use it, on the embedded pool.
# shellcheck disable=SC2016 # what stands in single quotes is for the scripts to expand
# shellcheck disable=SC2030,SC2031 # each test is a subshell, and means to be

bats_require_minimum_version 1.5.0

setup() {
  load helper
  use_own_state
}

teardown() {
  end_own_state
}

run_script() {
  run --separate-stderr bash script
}

@test "the result is what the command printed, in a command substitution and in a function" {
  script -euo pipefail <<'END'
trap 'printf "trapped %s\n" "$?"' EXIT
first=$(lease__once k -- printf 'a\nb\n\n')
get() {
  local second
  second=$(lease__once -q k -- false)
  printf '<%s>' "$second"
}
printf '<%s>\n' "$first"
get
lease__once -q k -- false | od -An -c | tr -s ' '
END
  run_script
  assert_success
  assert_equal "$output" $'<a\nb>\n<a\nb> a \\n b \\n \\n\ntrapped 0'
}

@test "a failure is the command's, ends a script under set -e, and prints nothing" {
  script -euo pipefail <<'END'
trap 'printf "trapped %s\n" "$?"' EXIT
x=$(lease__once k -- sh -c 'echo no; exit 7')
printf 'not reached: %s\n' "$x"
END
  run_script
  assert_failure 7
  assert_equal "$output" 'trapped 7'
  script -u <<<'f() { lease__once k -- sh -c "exit 9" || printf "%s\n" "$?"; }; f; bash -c "lease__once k -- echo child"'
  run_script
  assert_success
  assert_equal "$output" $'9\nchild'
}

@test "1 MiB with NUL bytes and no newline at the end is the same for all, through pipes" {
  script -euo pipefail <<'END'
printf '\0\n\377' >wanted && head -c 1048571 /dev/urandom >>wanted && printf '\0x' >>wanted
for n in 1 2 3; do
  { lease__once -q k -- cat wanted | cat >"got$n"; } &
done
wait
for n in 1 2 3; do cmp "got$n" wanted; done
END
  run_script
  assert_success
}
