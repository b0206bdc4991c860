# GPT-2 small: the first figure in tokens per second.
source tests/gpu/stages/training.sh
train gpt2-small 10
exit "$failed"
