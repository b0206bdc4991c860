# The kernels' tests under one tool of compute-sanitizer, which its caller names.
command -v compute-sanitizer >/dev/null || {
  echo "compute-sanitizer, which comes with CUDA, is not on the PATH"
  exit 2
}
exec bash -euo pipefail tests/gpu/stages/tests.sh compute-sanitizer --tool "$1" --error-exitcode 1 --print-limit 20
