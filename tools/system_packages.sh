#!/usr/bin/env bash
# Installs the programs that some tests need and that pip does not have. Where that is not possible it says loudly
# which tests will be skipped, and succeeds: the tests say the same again.
set -euo pipefail

missing=()
skipped=()
export PATH="$PATH:/usr/sbin:/sbin:/usr/local/sbin"

# need 'what the tests are about' PROGRAM PACKAGE...
need() {
  local what=$1 program=$2
  shift 2
  if ! command -v "$program" >/dev/null; then
    missing+=("$@")
    skipped+=("$what")
  fi
}

if ! compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null; then
  need 'the store on PostgreSQL' postgres postgresql
fi
need 'runner docker, with Podman' podman podman runc netavark aardvark-dns busybox-static
need 'runner docker, with a Docker engine' dockerd docker.io iptables busybox-static
need 'the provisioner libvirt, on virtual machines' virsh libvirt-daemon-system libvirt-clients qemu-system-x86 qemu-utils
need 'the virtual machines of libvirt: their disks and drives' genisoimage genisoimage cpio kmod e2fsprogs openssh-client
need 'a network of libvirt' dnsmasq dnsmasq-base iptables
need 'the runner slurm, on a Slurm of three nodes' slurmctld slurm-wlm
need 'an MPI program over the nodes of a Slurm job' mpicc openmpi-bin libopenmpi-dev gcc
need 'the runner kubernetes, on a server that behaves like Kubernetes' busybox busybox-static util-linux
need 'runs over SSH' sshd openssh-server openssh-client
need 'hosts with networks of their own' ip iproute2 util-linux
if ! command -v chromium-browser >/dev/null; then
  need 'the pages, in a real browser' chromium chromium fonts-dejavu-core
fi
if [ ${#missing[@]} -eq 0 ]; then
  exit 0
fi

warn() {
  echo '!!!' >&2
  echo "!!! $1" >&2
  for what in "${skipped[@]}"; do
    echo "!!! SKIPPED: $what" >&2
  done
  echo '!!!' >&2
  exit 0
}

if ! command -v apt-get >/dev/null; then
  warn "there is no apt-get here: install ${missing[*]} by hand to run these tests too"
fi
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! sudo -n true 2>/dev/null; then
    warn "no right to install ${missing[*]} (neither root nor sudo without a password)"
  fi
  as_root=(sudo -n)
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
echo "Installing ${missing[*]} with apt-get ..."
export DEBIAN_FRONTEND=noninteractive
if ! { "${as_root[@]}" apt-get update -qq &&
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -qq -y --no-install-recommends "${missing[@]}"; } \
  >"$log" 2>&1 </dev/null; then
  tail -n 5 "$log" >&2
  warn "apt-get could not install ${missing[*]}"
fi
