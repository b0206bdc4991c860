# Deeper models, which PyTorch takes minutes to compile as a whole: block by block.
source tests/gpu/stages/compared.sh
[ -z "$tiny" ] || exit 0
compare --cases 774M-bf16,1.5B-bf16 --seconds 5 --limit 120 --vocabularies padded --compile blocks
exit "$failed"
