#!/usr/bin/env bash
# Builds the four Kubernetes 1.20 programs that tools/kubernetes/check.py starts, from Debian's own source package.
#
#   tools/kubernetes/build.sh FOLDER     needs Debian 12, root, 5 GB of disk and 10 to 30 minutes
#
# FOLDER/bin has them afterwards. What is there is not built again.
set -euo pipefail

folder=$(mkdir -p "$1" && cd "$1" && pwd)
programs=(kube-apiserver kube-scheduler kube-controller-manager kubelet)
if [ -x "$folder/bin/kubelet" ]; then
  exit 0
fi

uri=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | grep -v security | head -n 1)
cd "$folder"
mkdir -p apt/lists/partial apt/cache/archives/partial src gopath/src/k8s.io home bin
echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $uri bookworm main" >src.list
own=(-o "Dir::Etc::sourcelist=$folder/src.list" -o Dir::Etc::sourceparts=/dev/null -o "Dir::State::lists=$folder/apt/lists"
  -o "Dir::Cache=$folder/apt/cache" -o APT::Sandbox::User=root)
if ! compgen -G 'kubernetes_*.orig.tar.gz' >/dev/null; then
  apt-get "${own[@]}" update -qq
  apt-get "${own[@]}" source --download-only kubernetes
fi
export DEBIAN_FRONTEND=noninteractive
RUNLEVEL=1 apt-get install -qq -y --no-install-recommends \
  golang-go etcd-server etcd-client rsync jq conntrack socat docker.io busybox-static gcc libc6-dev make \
  golang-github-modern-go-reflect2-dev

[ -d src/vendor ] || tar xzf kubernetes_*.orig.tar.gz -C src --strip-components=1
# What is in the source crashes with Go 1.18 and later while it walks through a map.
cp /usr/share/gocode/src/github.com/modern-go/reflect2/*.go src/vendor/github.com/modern-go/reflect2/
rm -f src/vendor/github.com/modern-go/reflect2/{go_above_17,go_below_17,go_below_19}.go
ln -sfn "$folder/src" gopath/src/k8s.io/kubernetes
cd gopath/src/k8s.io/kubernetes
export GOPATH=$folder/gopath HOME=$folder/home CGO_ENABLED=0 GOPROXY=off GOFLAGS=-mod=vendor PATH=/usr/lib/go/bin:$PATH
export KUBE_GIT_VERSION=v1.20.2 KUBE_GIT_MAJOR=1 KUBE_GIT_MINOR=20 KUBE_GIT_COMMIT=debian KUBE_GIT_TREE_STATE=archive
make WHAT="${programs[*]/#/cmd/}"
for program in "${programs[@]}"; do
  cp "_output/local/go/bin/$program" "$folder/bin/$program.part"
  mv "$folder/bin/$program.part" "$folder/bin/$program"
done
