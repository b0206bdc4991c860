# The tests of our own kernels under the tool of compute-sanitizer that the caller names, the largest kernels first.
# Failed calls do not count as errors: some tests expect them, and NVIDIA's libraries probe.
sanitizer=$(PATH=$PATH:/usr/local/cuda/bin command -v compute-sanitizer) || {
  echo "compute-sanitizer, which comes with CUDA, is neither on the PATH nor in /usr/local/cuda/bin"
  exit 2
}
names="attention cached_attention cross_entropy norm embedding target_rows operators dropout adamw momentum"
exec bash -euo pipefail tests/gpu/stages/tests.sh "$names state_update elementwise batch_norm" \
  "$sanitizer" --tool "$1" --report-api-errors no --error-exitcode 1 --print-limit 20
