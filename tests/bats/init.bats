#!/usr/bin/env bats
# The text that is sourced: where it comes from, and that sourcing it changes nothing.
# shellcheck disable=SC2016 # what stands in single quotes is for the scripts to expand

bats_require_minimum_version 1.5.0

setup() {
  load helper
  use_own_state
}

@test "init prints a line of its own and the file, and scripts/client.sh is the file" {
  leasectl init bash >all
  assert_equal "$(sed -n 2p all)" '_LEASE__INIT=(yes)'
  sed 2d all >printed
  cmp printed "$FUNCTIONS"
  cmp printed "$ROOT/scripts/client.sh"
}

@test "scripts/client.sh is a link in the source, and a file wherever it is copied to" {
  assert_equal "$(readlink "$ROOT/scripts/client.sh")" ../leasectl/shell/leasectl.bash
  cp "$ROOT/scripts/client.sh" copy
  [[ ! -L copy ]]
  cmp copy "$FUNCTIONS"
}

@test "the printed text passes shellcheck and shfmt" {
  type -P shellcheck >/dev/null && type -P shfmt >/dev/null || skip 'needs shellcheck and shfmt'
  leasectl init bash >printed
  run shellcheck --norc printed
  assert_output ''
  run shfmt -i 2 -ci -d printed
  assert_output ''
}

@test "sourcing is silent and succeeds, in every way and under every option" {
  local options how
  for options in '' '-e -u -o pipefail' '-e -u -E -T' '-o posix' '-o posix -e -u' '-a' '-f' '-C' '-x'; do
    for how in 'source "$FUNCTIONS"' 'source <(leasectl init bash)' 'text=$(leasectl init bash); eval "$text"' \
      'source "$FUNCTIONS"; source "$FUNCTIONS"'; do
      # shellcheck disable=SC2086 # several words
      run --separate-stderr bash $options -c "$how; type -t lease__acquire"
      assert_success
      assert_output function
      [[ $options == *x* ]] || assert_equal "$stderr" ''
    done
  done
}

@test "sourcing changes no option, no trap and no variable, and defines only names of its own" {
  cat >state <<'SCRIPT'
printf '%s\n' "$-" "$IFS" "$PWD"
set +o
shopt -p
trap -p
alias
compgen -v
compgen -A function
SCRIPT
  local options
  for options in '+x' '-e -u -o pipefail' '-o posix' '-O expand_aliases' '-O nullglob'; do
    # shellcheck disable=SC2086 # several words
    run bash $options -c 'trap "printf exit" EXIT; source ./state >before; source "$FUNCTIONS"; source ./state >after; trap - EXIT; diff before after'
    assert_line '> lease__acquire'
    run grep -vE '^(> _?lease__[a-z_]+|[0-9,]+a[0-9,]+)$' <<<"$output"
    assert_output ''
  done
}

@test "every function is exported" {
  run bash -c 'source "$FUNCTIONS"; diff <(compgen -A function) <(declare -Fx | while read -r _ _ name; do printf "%s\n" "$name"; done)'
  assert_success
  assert_output ''
}

@test "no local has a name that a script may use" {
  run grep -nE '^ *local( -[a-zA-Z]+)* ' "$FUNCTIONS"
  assert_success
  # Whatever they are set to: a word that begins neither so nor with a quote or a dollar sign.
  run grep -E 'local( -[a-zA-Z]+)*( [^ ]*)* [a-zA-Z_]' < <(sed -E 's/ (_lease__[a-z_]+)(=("[^"]*"|'\''[^'\'']*'\''|[^ ]*))?//g' <<<"$output")
  assert_output ''
}

@test "as step scripts source it: bash -c, set -eu, LEASE_PROXY_CLIENT_SH" {
  export LEASE_PROXY_CLIENT_SH=$ROOT/scripts/client.sh
  unset LEASECTL_BACKEND
  run --separate-stderr bash -c 'set -eu
source "$LEASE_PROXY_CLIENT_SH"
h=$(lease__acquire --type=T --scope=step --quiet)
lease__release --handle="$h"'
  assert_success
  assert_equal "$stderr" ''
}

@test "functions of init lease from the embedded pool without a variable, also in children; the mounted file's don't" {
  unset LEASECTL_BACKEND
  make_pool T
  local take='lease__release --handle="$(lease__acquire -t T --scope=step)"'
  run --separate-stderr bash -c 'source <(leasectl init bash); '"$take"
  assert_output 'T--00 released'
  run --separate-stderr bash -c "source <(leasectl init bash); bash -c '$take'"
  assert_output 'T--00 released'
  # A child that sources the mounted file, and a shell that sources it after the other.
  local which
  for which in "bash -c 'source \"\$FUNCTIONS\"; $take'" "source \"\$FUNCTIONS\"; $take"; do
    run --separate-stderr bash -c "source <(leasectl init bash); $which"
    assert_output --partial 'dry run mode: it would release'
  done
}
