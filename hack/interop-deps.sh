#!/usr/bin/env bash
# Installs the official webhook libraries that test/interop verifies real deliveries with, and Node where it is missing
# and can be installed: as root on Debian or Ubuntu. Does nothing when all is there already.
set -euo pipefail

cd "$(dirname "$0")/.."
dir=test/interop
lock=$dir/package-lock.json
stamp=$dir/node_modules/.installed

[ -f "$lock" ] || exit 0

if ! command -v npm >/dev/null; then
	if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
		echo "The interop tests need Node and npm: install them and run make again." >&2
		exit 1
	fi
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends nodejs npm >/dev/null
fi

# npm ci always starts afresh, so it runs only when the lock file has changed since.
if ! sha256sum --status -c "$stamp" 2>/dev/null; then
	npm ci --prefix "$dir" --no-audit --no-fund
	sha256sum "$lock" >"$stamp"
fi
