# 1.5B and 7B, then both with the backward pass of cuDNN's attention that is not deterministic.
source tests/gpu/stages/training.sh
train 1.5B,7B 6
[[ $common_flags == *"--attention ranvier"* ]] || train 7B,1.5B 5 --attention-backward fast
exit "$failed"
