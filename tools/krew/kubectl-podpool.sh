#!/bin/sh
# kubectl podpool, as installed by krew. The first run installs podpool into a virtual environment of this version.
set -eu
version=@VERSION@
home="${XDG_CACHE_HOME:-$HOME/.cache}/podpool/kubectl-$version"
here=$(dirname "$(readlink -f "$0")")
if [ ! -e "$home/installed" ]; then
  echo "podpool: installing version $version into $home" >&2
  "${PODPOOL_PYTHON:-python3}" -m venv --clear "$home"
  "$home/bin/python" -m pip install --quiet --require-hashes --requirement "$here/requirements.lock"
  "$home/bin/python" -m pip install --quiet --no-deps "podpool==$version"
  touch "$home/installed"
fi
exec "$home/bin/kubectl-podpool" "$@"
