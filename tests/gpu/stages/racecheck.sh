# Tests of our own kernels under compute-sanitizer: races in shared memory.
source tests/gpu/stages/sanitizer.sh racecheck
