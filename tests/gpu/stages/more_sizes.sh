# The sizes between.
source tests/gpu/stages/training.sh
train 774M,1.3B,3B 6
exit "$failed"
