# Tests of our own kernels under compute-sanitizer: accesses outside of arrays and of allocated memory.
source tests/gpu/stages/sanitizer.sh memcheck
