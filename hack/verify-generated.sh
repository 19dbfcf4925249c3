#!/usr/bin/env bash
# Fails when `make generate` changes anything in the paths given: a generated file is out of date or edited by hand.
# Uncommitted work elsewhere, or in the sources of what is generated, does not matter.
set -euo pipefail

sums() { find "$@" -type f -print0 | sort -z | xargs -0 sha256sum; }

before=$(sums "$@")
make --no-print-directory generate
after=$(sums "$@")

if [ "$before" != "$after" ]; then
	echo "Generated files were out of date; they are up to date now, commit them:" >&2
	diff <(echo "$before") <(echo "$after") | sed -n 's/^[<>] [0-9a-f]*  /  /p' | sort -u >&2
	exit 1
fi
