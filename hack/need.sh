#!/usr/bin/env bash
# hack/need.sh COMMAND PACKAGE...: installs Debian packages where a command is missing, as root; else says what to do.
set -euo pipefail

command=$1
shift
if command -v "$command" >/dev/null; then
	exit 0
fi
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
	echo "$command is missing: install it (on Debian: apt-get install $*) and run make again." >&2
	exit 1
fi
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
