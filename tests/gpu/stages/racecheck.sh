# The kernels' tests under compute-sanitizer: races in shared memory.
source tests/gpu/stages/sanitizer.sh racecheck
