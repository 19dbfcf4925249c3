#!/usr/bin/env bash
# Runs every fuzz test of the module for a while: hack/fuzz.sh [TIME], 3s each unless told.
set -euo pipefail

cd "$(dirname "$0")/.."
time=${1:-3s}

mapfile -t files < <(git ls-files --cached --others --exclude-standard -- '*_test.go' | xargs grep -l '^func Fuzz' || true)
if ((${#files[@]} == 0)); then
	echo "hack/fuzz.sh: no fuzz test found; is this a git checkout?" >&2
	exit 1
fi
for dir in $(printf '%s\n' "${files[@]}" | sed '/^$/d' | xargs -r -n 1 dirname | sort -u); do
	for name in $(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$dir"/*_test.go | sort -u); do
		echo "--- fuzz ./$dir $name for $time"
		# One test at a time, as go test demands; ordinary tests have run already.
		go test -run '^$' -fuzz "^$name\$" -fuzztime "$time" "./$dir"
	done
done
