#!/usr/bin/env bash
# From a fresh checkout to a trained model: installs dependencies, builds, trains a small GPT on this repository's
# sources with two pipeline stages and two rows, and generates text. Takes a few minutes on two cores.
#
# usage: apps/quickstart.sh [STEPS]      default 60; safe to repeat
set -euo pipefail
cd "$(dirname "$0")/.."
steps=${1:-60}

cmake/install_dependencies.sh
# The CUDA device takes more than a third of the build time and cannot run without a GPU.
cuda=()
if [ ! -e build/release/CMakeCache.txt ] && ! nvidia-smi -L >/dev/null 2>&1; then
  echo "No GPU found; building for CPUs only. To change this, run cmake --preset release -DRANVIER_CUDA=AUTO."
  cuda=(-DRANVIER_CUDA=OFF)
fi
cmake/build.sh release "${cuda[@]}" ranvier-train ranvier-generate ranvier-report

out=build/quickstart
mkdir -p "$out"
# Training text: all sources and documentation of the repository.
find . -path ./build -prune -o -path ./.git -prune -o -type f \
  \( -name '*.[ch]pp' -o -name '*.cu' -o -name '*.md' -o -name '*.sh' -o -name '*.py' -o -name 'CMakeLists.txt' \) -print |
  LC_ALL=C sort | xargs cat > "$out/corpus.txt"

[ "$(id -u)" -ne 0 ] || export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
train=(mpirun -n 4 --oversubscribe --bind-to none build/release/apps/ranvier-train
       --data "$out/corpus.txt" --layers 4 --hidden 256 --sequence-length 128
       --batch-size 32 --microbatch-size 4 --learning-rate 2e-3 --steps "$steps")
"${train[@]}" --g-inter 2 --g-data 2 --validation-split 0.05 --save "$out" --metrics "$out/metrics.jsonl" --overwrite \
  --trace "$out/trace.json"

loss() { sed -n "$1"'s/.*"loss":\([0-9]*\.[0-9]\{1,3\}\).*/\1/p' "$out/metrics.jsonl"; }

echo
echo "Text generated from the prompt '// The ':"
build/release/apps/ranvier-generate --weights "$out" --prompt '// The ' --tokens 300
build/release/apps/ranvier-report "$out" -o "$out/report.html" --title Quickstart --overwrite >/dev/null
cat <<END

Done. The loss decreased from $(loss 1) to $(loss '$') in $steps steps; guessing all 256 bytes with equal probability has 5.545.
  weights   $out/model.safetensors, with config.json (the names and layouts of Hugging Face's GPT-2)
  metrics   $out/metrics.jsonl
  report    $out/report.html (open it in a browser)
  trace     $out/trace.json (open it in https://ui.perfetto.dev)

Next, continue from these weights with a pipeline of four stages:
  ${train[*]} --g-inter 4 --init-from $out/model.safetensors
END
