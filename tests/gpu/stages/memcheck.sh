# The kernels' tests under compute-sanitizer: accesses outside of arrays and of what was allocated.
source tests/gpu/stages/sanitizer.sh memcheck
