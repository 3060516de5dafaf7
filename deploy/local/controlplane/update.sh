#!/bin/sh
# Pins another version of the control plane: update.sh v1.36.3 [FOLDER]
#
# k8s.io/kubernetes requires its staging modules at v0.0.0 and replaces them with folders. Its
# replacements do not apply to modules that import it, so each staging module needs a replace here.
#
# Without FOLDER, the other modules have at least the versions that curl-me-that is built with, so that `make demo`
# compiles a package that both use only once.
set -eu
version=${1:?usage: update.sh vMAJOR.MINOR.PATCH [FOLDER]}
here=$(cd "${2:-$(dirname "$0")}" && pwd)
module=$(mktemp -d)
trap 'rm -rf "$module"' EXIT
cd "$module"
export GOWORK=off

go mod download "k8s.io/kubernetes@$version"
upstream=$(go env GOMODCACHE)/k8s.io/kubernetes@$version/go.mod
{
	echo 'module github.com/kv8s/curl-me-that/deploy/local/controlplane/assets'
	grep '^go ' "$upstream"
	echo "require k8s.io/kubernetes $version"
	echo 'tool ('
	echo 'go.etcd.io/etcd/server/v3'
	echo 'k8s.io/kubernetes/cmd/kube-apiserver'
	echo 'k8s.io/kubernetes/cmd/kubectl'
	echo ')'
	echo 'replace ('
	awk -v staging="v0.${version#v1.}" '/=> .\/staging\// {print $1" => "$1" "staging}' "$upstream"
	echo ')'
} >go.mod
if [ $# = 1 ]; then
	(cd "$here" && GOWORK='' go list -deps -f '{{with .Module}}{{if .Version}}-require={{.Path}}@{{.Version}}{{end}}{{end}}' ../cmd/curl-me-that) |
		sort -u | grep -v '=k8s\.io/.*@v0\.[1-9]' | xargs go mod edit
fi
go mod tidy
cp go.mod "$here/go.mod.txt"
cp go.sum "$here/go.sum.txt"
