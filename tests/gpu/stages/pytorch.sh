# GPT-2 small compared with PyTorch, compiled as a whole.
source tests/gpu/stages/compared.sh
if [ -n "$tiny" ]; then
  compare --cases tiny-bf16 --seconds 0.1 --limit 60 --compile none --pytorch-device cpu --vocabularies own
else
  compare --cases gpt2-small-bf16 --seconds 4 --limit 70
fi
exit "$failed"
