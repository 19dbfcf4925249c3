#!/usr/bin/env bash
# Installs the official webhook libraries that test/interop verifies real deliveries with, and Node and Python, which the
# sample receivers are run by too, where they are missing and can be installed: as root on Debian or Ubuntu. Does nothing
# when all is there already.
set -euo pipefail

cd "$(dirname "$0")/.."
dir=test/interop
lock=$dir/package-lock.json
stamp=$dir/node_modules/.installed

[ -f "$lock" ] || exit 0

hack/need.sh npm nodejs npm
hack/need.sh python3 python3

# npm ci always starts afresh, so it runs only when the lock file has changed since.
if ! sha256sum --status -c "$stamp" 2>/dev/null; then
	npm ci --prefix "$dir" --no-audit --no-fund
	sha256sum "$lock" >"$stamp"
fi
