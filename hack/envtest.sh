#!/usr/bin/env bash
# Prints the folder that holds kube-apiserver, etcd and kubectl, which the tests of the control plane run against, for
# KUBEBUILDER_ASSETS. In this order: the folder that KUBEBUILDER_ASSETS names; bin/k8s; a copy in the user's cache folder;
# a build of the versions that hack/k8s pins. What is built is kept in bin/k8s and in the cache, by a stamp of its sources.
set -euo pipefail

cd "$(dirname "$0")/.."

programs=(kube-apiserver etcd kubectl)

# complete DIR: whether all three programs are there.
complete() {
	local program
	for program in "${programs[@]}"; do
		[ -x "$1/$program" ] || return 1
	done
}

# place FROM TO: TO gets the programs of FROM, all at once. Whoever comes first wins; a half-made folder has another name.
place() {
	local new
	mkdir -p "$(dirname "$2")"
	new=$(mktemp -d "$2.XXXXXX")
	chmod 755 "$new"
	ln "$1"/* "$new/" 2>/dev/null || cp -f "$1"/* "$new/" # other file systems take no links
	complete "$2" || { rm -rf "$2" && mv "$new" "$2"; }
	rm -rf "$new"
	complete "$2"
}

if [ -n "${KUBEBUILDER_ASSETS:-}" ]; then
	if ! complete "$KUBEBUILDER_ASSETS"; then
		echo "KUBEBUILDER_ASSETS is $KUBEBUILDER_ASSETS, which does not hold ${programs[*]}: name a folder that does, or unset it to have them built." >&2
		exit 1
	fi
	cd "$KUBEBUILDER_ASSETS" && pwd
	exit
fi

version=$(cd hack/k8s && go list -m -f '{{.Version}}' k8s.io/kubernetes)
release=${version#v}
pkg=k8s.io/component-base/version
ldflags="-s -w -X $pkg.gitVersion=$version -X $pkg.gitMajor=${release%%.*} -X $pkg.gitMinor=$(cut -d. -f2 <<<"$release")"

stamp=$({ cat hack/k8s/go.mod hack/k8s/go.sum hack/k8s/etcd/main.go && echo "$ldflags" && go env GOOS GOARCH; } | sha256sum | cut -c1-12)
here=$PWD/bin/k8s/$stamp
cache=${XDG_CACHE_HOME:-$HOME/.cache}/doorstep/k8s/$stamp

if complete "$here"; then
	echo "$here"
	exit
fi
if complete "$cache"; then
	place "$cache" "$here"
	echo "$here"
	exit
fi

echo "building kube-apiserver, etcd and kubectl $version for the tests: about 7 minutes on two cores, once." >&2
echo "They are kept in bin/k8s and $cache; KUBEBUILDER_ASSETS=DIR takes others instead." >&2
mkdir -p bin/k8s
build=$(mktemp -d "$PWD/bin/k8s/build.XXXXXX")
trap 'rm -rf "$build"' EXIT
started=$SECONDS
for package in ./etcd k8s.io/kubernetes/cmd/kubectl k8s.io/kubernetes/cmd/kube-apiserver; do
	echo "building ${package##*/}" >&2
	(cd hack/k8s && CGO_ENABLED=0 go build -trimpath -ldflags "$ldflags" -o "$build/" "$package")
done
place "$build" "$here"
place "$here" "$cache" || echo "could not keep a copy in $cache; another working copy will build its own." >&2
echo "built in $((SECONDS - started)) s" >&2
echo "$here"
