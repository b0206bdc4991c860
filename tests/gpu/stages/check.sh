# What this machine has, and whether what all stages need is there: a few seconds before minutes are spent.
nvidia-smi -L
nvidia-smi --query-gpu=name,driver_version,memory.total,memory.used,clocks.sm,clocks.mem,power.limit \
  --format=csv,noheader
uname -r
ldd --version | sed -n 1p
memory=$(awk '/MemTotal/ { printf "%.0f GiB", $2 / 1048576 }' /proc/meminfo)
echo "$(nproc) cores, $memory, $(df -h --output=avail . | tail -1) free here"
for tool in nvcc compute-sanitizer ncu nsys mpirun cmake ninja; do
  echo "$tool: $(command -v "$tool" || echo none)"
done
python3 -c 'import torch; print("PyTorch", torch.__version__)' 2>/dev/null || echo "PyTorch: python3 has none"
IFS=: read -ra folders <<<"$LD_LIBRARY_PATH"
for library in cublasLt cudnn nvrtc nccl; do
  found=
  for folder in "${folders[@]}"; do found=${found:-$(compgen -G "$folder/lib$library.so*" | head -1 || true)}; done
  echo "$library: ${found:-not in LD_LIBRARY_PATH, which this script sets; the system may have it}"
done

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat README.md >"$folder/text"
train() {  # <ranks> <flags…>
  mpirun -n "$1" --oversubscribe --bind-to none "$build/apps/ranvier-train" --data "$folder/text" --layers 2 \
    --hidden 64 --heads 1 --sequence-length 32 --batch-size 4 --microbatch-size 2 --steps 2 "${@:2}" 2>&1
}
train 1 --version
train 2 --device cpu --threads 1 | tail -1
# shellcheck disable=SC2086  # words
train 1 --device cuda --precision fp32 $tiny_flags | tail -1
attention=ranvier
if said=$(train 1 --device cuda --precision bf16 --attention cudnn --products first $tiny_flags); then
  attention=cudnn
  grep '^attention' <<<"$said" || true
elif [ -z "$without_cudnn" ]; then
  echo "$said"
  echo "check: attention by cuDNN does not run (above), so that trainings would take our own without a word. A build" \
    "needs cudnn-frontend's headers (cmake/install_dependencies.sh --cuda, then tests/gpu/packages.sh), a machine" \
    "libcudnn.so.9. --without-cudnn goes on all the same."
  exit 1
fi
gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader | sed -n 1p)
printf '{"bench": "check", "gpu": "%s", "attention": "%s"}\n' "$gpu" "$attention"
