# Lists this machine's tools and starts the programs that all stages need, in a few seconds. If cuDNN fails, it is
# recorded, and later stages compute attention with our own kernels.
nvidia-smi -L
uname -r
ldd --version | sed -n 1p
memory=$(awk '/MemTotal/ { printf "%.0f GiB", $2 / 1048576 }' /proc/meminfo)
echo "$(nproc) cores, $memory, $(df -h --output=avail . | tail -1) free here"
for tool in nvcc compute-sanitizer ncu nsys mpirun cmake ninja; do
  echo "$tool: $(PATH=$PATH:/usr/local/cuda/bin command -v "$tool" || echo none)"
done
${torch_python:-python3} -c 'import importlib.metadata as m; print("PyTorch", m.version("torch"))' 2>/dev/null ||
  echo "PyTorch: none; comparisons with it are left out"
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
must_train() {
  local said
  said=$(train "$@") || { echo "$said"; exit 1; }
  tail -1 <<<"$said"
}
train 1 --version
must_train 2 --device cpu --threads 1
# shellcheck disable=SC2086  # words
must_train 1 --device cuda --precision fp32 $common_flags
attention=cudnn
# shellcheck disable=SC2086  # words
if said=$(train 1 --device cuda --precision bf16 $common_flags --attention cudnn --products first); then
  grep -i attention <<<"$said" || true
else
  attention=ranvier
  echo "$said"
  echo "check: cuDNN fails (above): attention is computed by our own kernels from here on. cuDNN needs libcudnn.so.9" \
    "and a build with cudnn-frontend's headers (cmake/install_dependencies.sh --cuda)."
fi
commit=$(cat "$build/commit" 2>/dev/null || git rev-parse --short HEAD 2>/dev/null || true)
nvidia-smi --query-gpu=name,driver_version,memory.total,memory.free --format=csv,noheader,nounits | sed -n 1p |
  awk -F ', ' -v attention="$attention" -v commit="$commit" '{
    printf "{\"bench\": \"check\", \"gpu\": \"%s\", \"driver\": \"%s\", \"total_mib\": %d, \"free_mib\": %d, ", $1, $2, $3, $4
    printf "\"commit\": \"%s\", \"attention\": \"%s\"}\n", commit, attention }'
