#!/usr/bin/env bash
# Makes the virtual environment DIRECTORY/venv with packages from PyPI, by python3 or $PYTHON,
# unless it is there with just these:
#
#   scripts/venv.sh DIRECTORY PACKAGE==VERSION...
#
# Where that fails it says why in one line, and DIRECTORY/log has the rest.
set -euo pipefail

directory=$1
shift
if [ "$(cat "$directory/packages" 2>/dev/null)" = "$*" ]; then
	exit
fi
mkdir -p "$directory"
rm -f "$directory/packages" # what is there now is cleared, also where the rest fails
{ "${PYTHON:-python3}" -m venv --clear "$directory/venv" && "$directory/venv/bin/pip" install --quiet "$@"; } >"$directory/log" 2>&1 || {
	echo "${PYTHON:-python3} cannot install $*: $(tail -n 1 "$directory/log")" >&2
	exit 1
}
echo "$*" >"$directory/packages"
