# shellcheck shell=bash
# Sourced by scripts/demo and scripts/test, from the top folder: what a fresh machine has to get first.

say() { # <word>...
  printf '%s\n' "$*" >&2
}

as_root() { # <command> [<arg>...]
  if ((EUID == 0)); then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    say "not root, and no sudo to run: $*"
    return 1
  fi
}

# Whether a tool really works: a shim of a version manager, or Debian's python3 without its venv
# package, is on PATH and still of no use.
works() { # <tool>
  case $1 in
    *python3) "$1" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 9))' ;;
    openssl | etcdctl | caddy) "$1" version ;;
    nginx) nginx -v ;;
    kubectl) kubectl version --client ;;
    # What go.mod of the kube-apiserver asks for; an older one doesn't read it.
    go) [[ $(go env GOVERSION) =~ ^go1\.([0-9]+) ]] && ((BASH_REMATCH[1] >= 24)) ;;
    *) "$1" --version ;;
  esac >/dev/null 2>&1
}

missing_packages() { # <tool>...
  local tool
  for tool; do
    works "$tool" && continue
    case $tool in
      python3) printf '%s\n' python3 python3-venv ;;
      npm) printf '%s\n' nodejs npm ;;
      etcd) printf '%s\n' etcd-server ;;
      etcdctl) printf '%s\n' etcd-client ;;
      chromedriver) printf '%s\n' chromium-driver ;;
      kubectl) printf '%s\n' kubernetes-client ;;
      go) printf '%s\n' golang-go ;;
      setpriv) printf '%s\n' util-linux ;;
      promtool) printf '%s\n' prometheus ;;
      *) printf '%s\n' "$tool" ;;
    esac
  done
}

# Has those tools afterwards, from Debian's packages where they were missing, or fails.
ensure_tools() { # <tool>...
  local packages
  mapfile -t packages < <(missing_packages "$@")
  ((${#packages[@]})) || return 0
  if ! command -v apt-get >/dev/null; then
    say "missing, and there is no apt-get to install them: ${packages[*]}"
    return 1
  fi
  # Debian's node trusts the system's certificates, which a minimal machine doesn't have.
  as_root apt-get update -qq &&
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq --yes --no-install-recommends \
      ca-certificates "${packages[@]}" || return
  mapfile -t packages < <(missing_packages "$@")
  ((${#packages[@]} == 0)) || {
    say "installed, but still not working: ${packages[*]}"
    return 1
  }
}

# Prints the Python that .venv is of: Debian's before one that comes first in PATH, such as pyenv's,
# which is built without optimization: a command takes a fifth longer to start there.
python_for_venv() {
  local debians=/usr/bin/python3
  if works "$debians"; then
    printf '%s\n' "$debians"
  else
    printf 'python3\n'
  fi
}

# Has leasectl in .venv afterwards, from this clone: `.` or, with extras, `.[extra,extra]`.
ensure_venv() { # <requirement> [<option of pip install>...]
  # One whose Python has gone from the machine doesn't run: make it anew.
  .venv/bin/python -m pip --version >/dev/null 2>&1 ||
    "$(python_for_venv)" -m venv --clear .venv || return
  .venv/bin/python -m pip install --quiet --disable-pip-version-check "${@:2}" --editable "$1"
}
