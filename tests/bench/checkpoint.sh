#!/usr/bin/env bash
# Cost of checkpoints during training: two ranks with a thread each, a small model and GPT-2 small, with a checkpoint
# every few steps and without, in turns.
#
#   tests/bench/checkpoint.sh [--directory /tmp] [--rounds 3] [--steps 13] [--every 4] [--build build/release]
#                             [--only 6x384|gpt2-small] [--python PYTHON] [-- FLAGS OF ranvier-train]

# One JSON line per model, medians over rounds:
#   seconds, with_checkpoints  mean step of a run without and with checkpoints, without the first step
#   checkpoint_…               size, and time until it is complete
#   waited_seconds             optimizer stall per checkpoint; `waited_of_a_step`: as a share of a step
#   planned_mib_more           memory that checkpoints add to rank 0's plan; `resident_mib_more`: to its peak
#   load_…                     time to resume with --shard zero3; `load_of_fio`: share of fio's rate on the same files
#
# fio reads in the same rounds, with its fastest engine and depth, 1 MiB at a time, without the page cache. Before each
# load, another process touches as much memory: on a virtual machine, new memory can be slower than the disk.
#
# Then the disk's write rate by fio's fastest engine, and checkpoint_files_bench. --python, an interpreter with PyTorch
# 2.4 or newer: PyTorch's asynchronous distributed checkpoint of the same size as well.
source "$(dirname "$0")/measuring.sh"
directory=/tmp rounds=3 steps=13 every=4 build=build/release only= python=
read_flags directory rounds steps every build only python -- "$@"
random_tokens "$folder/tokens.bin" 200000 50257
checkpoints=$(mktemp -d "$directory/ranvier-checkpoint.XXXXXX")
trap 'rm -rf "$folder" "$checkpoints"' EXIT

names=("6x384" "gpt2-small")
models=("--layers 6 --hidden 384 --heads 6 --vocab-size 50257 --batch-size 32 --microbatch-size 4"
        "--model gpt2-small --batch-size 16 --microbatch-size 4")
for i in "${!names[@]}"; do [[ -z $only || ${names[$i]} == "$only" ]] || unset "names[$i]"; done
[ "${#names[@]}" -gt 0 ] || { echo "checkpoint.sh: --only $only matches no model; use 6x384 or gpt2-small" >&2; exit 2; }
train() {  # <model> <metrics> <flags…>
  # shellcheck disable=SC2086  # a model is words
  mpirun --oversubscribe --bind-to none -n 2 "$build/apps/ranvier-train" --data "$folder/tokens.bin" --tokenizer none \
    $1 --sequence-length 128 --threads 1 --steps "$steps" --clip 0 --metrics "$2" "${@:3}" "${more[@]}" \
    >"$folder/log" 2>&1 || { cat "$folder/log" >&2; exit 1; }
}
mean_of_steps() {  # <metrics>: without the first
  value seconds "$1" | awk 'NR > 1 { sum += $1 } END { print sum / (NR - 1) }'
}
memory_of_rank_0() {  # <metrics> <planned file> <resident file>: appends MiB
  figures memory "$1" | awk '{ print $1 / 1048576 }' >>"$2"
  figures column "$folder/log" resident 0 | awk '{ print $1 / 1048576 }' >>"$3"
}

fio_rate() {  # <write|read> <engine> <depth> <flags…>: MB/s
  fio --name=disk --rw="$1" --ioengine="$2" --iodepth="$3" --bs=1M --direct=1 --group_reporting --output-format=json \
    "${@:4}" 2>"$folder/fio.errors" | sed -n '/^{/,$p' |
    way=$1 perl -MJSON::PP -0777 -ne 'print int decode_json($_)->{jobs}[0]{$ENV{way}}{bw_bytes} / 1e6'
}

write_rate() {  # {"bench": "fio write", …} of the fastest engine, on new files like those of a checkpoint
  local engine rate best=0 fastest=none
  for engine in io_uring libaio psync; do
    # psync has one request in flight per job.
    local jobs=1
    [ $engine != psync ] || jobs=8
    rm -f "$checkpoints/fio"
    rate=$(fio_rate write $engine 32 --filename="$checkpoints/fio" --size=1G --numjobs=$jobs --end_fsync=1 \
      --offset_increment=$((1024 / jobs))M --io_size=$((1024 / jobs))M) || continue
    if ((rate > best)); then best=$rate fastest=$engine; fi
  done
  rm -f "$checkpoints/fio"
  ((best > 0)) || { echo "checkpoint.sh: fio wrote with no engine" >&2; return 1; }
  printf '{"bench": "fio write", "engine": "%s", "mb_per_second": %d}\n' "$fastest" "$best"
}

read_rates() {  # <files…>: lines of "engine,depth MB/s"
  local engine depth rate
  for engine in io_uring libaio; do
    for depth in 8 32; do
      rate=$(fio_rate read $engine $depth --readonly --file_service_type=sequential --filename="$(IFS=: && echo "$*")") ||
        continue
      echo "$engine,$depth $rate"
    done
  done
}
fastest_of() {  # <rates of read_rates>: the line with the largest median
  cut -d' ' -f1 "$1" | sort -u | while read -r engine; do
    grep "^$engine " "$1" | cut -d' ' -f2 >"$folder/rates"
    echo "$engine $(median "$folder/rates")"
  done | sort -k2 -g | tail -n 1
}

touch_memory() {  # <MiB>: leaves free memory that the machine has touched
  perl -e 'my $bytes = "\0" x ($ARGV[0] << 20)' "$1"
}

for ((round = 0; round < rounds; ++round)); do
  for i in "${!names[@]}"; do
    train "${models[$i]}" "$folder/metrics"
    mean_of_steps "$folder/metrics" >>"$folder/none-$i"
    memory_of_rank_0 "$folder/metrics" "$folder/planned-none-$i" "$folder/resident-none-$i"
    rm "$folder/metrics"
    train "${models[$i]}" "$folder/metrics" --checkpoint "$checkpoints" --checkpoint-every "$every" --resume none
    mean_of_steps "$folder/metrics" >>"$folder/with-$i"
    memory_of_rank_0 "$folder/metrics" "$folder/planned-with-$i" "$folder/resident-with-$i"
    # No step follows the last checkpoint.
    for key in bytes seconds waited_seconds; do
      value "$key" "$folder/metrics" checkpoint | head -n -1 >>"$folder/$key-$i"
    done
    # No step is left to train.
    touch_memory "$(tail -n 1 "$folder/resident-with-$i" | awk '{ printf "%d", 2 * $1 }')"
    train "${models[$i]}" "$folder/loaded" --resume "$checkpoints" --shard zero3
    figures number "$folder/log" "resumed from" s >>"$folder/load-$i"
    if command -v fio >/dev/null; then
      newest=$(find "$checkpoints" -maxdepth 1 -name 'step-*' | sort | tail -n 1)
      read_rates "$newest"/rank-*.data >>"$folder/reads-$i"
    fi
    rm -rf "$folder/metrics" "$folder/loaded" "${checkpoints:?}"/*
  done
done
for i in "${!names[@]}"; do
  read -r fio fio_rate < <([ ! -f "$folder/reads-$i" ] || fastest_of "$folder/reads-$i") || true
  given=()
  for name in none with bytes seconds waited_seconds load planned-none planned-with resident-none resident-with; do
    figure=$(median "$folder/$name-$i")
    given+=(-v "${name//-/_}=$figure")
  done
  awk -v fio="${fio:-none}" -v fio_rate="${fio_rate:-0}" -v name="${names[$i]}" "${given[@]}" \
    'BEGIN { printf "{\"model\": \"%s\", \"seconds\": %.4f, \"with_checkpoints\": %.4f, \"over_none\": %.3f, ", name, none, with, with / none
             printf "\"checkpoint_mib\": %.0f, \"checkpoint_seconds\": %.3f, \"mib_per_second\": %.0f, ", bytes / 1048576, seconds, bytes / 1048576 / seconds
             printf "\"waited_seconds\": %.4f, \"waited_of_a_step\": %.4f, ", waited_seconds, waited_seconds / none
             printf "\"planned_mib_more\": %.1f, \"resident_mib_more\": %.1f, ", planned_with - planned_none, resident_with - resident_none
             printf "\"load_seconds\": %.3f", load
             if (load > 0) printf ", \"load_mb_per_second\": %.0f", bytes / 1e6 / load
             if (fio_rate > 0 && load > 0) printf ", \"fio_read\": \"%s\", \"fio_read_mb_per_second\": %d, \"load_of_fio\": %.3f", fio, fio_rate, bytes / 1e6 / load / fio_rate
             print "}" }'
done
if command -v fio >/dev/null; then write_rate; fi
"$build/tests/bench/checkpoint_files_bench" "$checkpoints" 1024 "$rounds" | tail -n 3
if [ -n "$python" ]; then
  "$python" tests/bench/pytorch_checkpoint.py --directory "$checkpoints" --mib "$(($(sort -n "$folder"/bytes-[01] | tail -1) / 1048576))"
fi
