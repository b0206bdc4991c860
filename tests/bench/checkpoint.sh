#!/usr/bin/env bash
# What checkpoints cost a training while it goes on: two ranks with a thread each, a small model and GPT-2 small, with
# and without a checkpoint every few steps, in turns.
#
#   tests/bench/checkpoint.sh [--directory /tmp] [--rounds 3] [--steps 13] [--every 4] [--build build/release]
#                             [--python PYTHON] [-- FLAGS OF ranvier-train]
#
# One JSON line per model: `seconds` of a step without checkpoints and with them (medians over rounds of the mean of a
# run's steps but the first), `over_none`, and of a checkpoint its MiB, seconds until it is whole, MiB a second, the
# seconds that steps waited for buckets, and these as a share of a step; what checkpoints add to rank 0's plan of its
# memory, and to the most that was resident of it, in MiB; then how long --resume takes to load it, with all states in
# two parts, and MB a second, beside fio's on the same files in the same rounds (`load_of_fio`): medians, of its fastest
# engine and depth, 1 MiB at a time past the system's cache. Memory that a rank loads into was touched by another process
# just before: a virtual machine's host takes back what nobody uses, and to have it again took longer than the disk.
# Then the disk's own rate of writing, by the fastest of fio's engines, and our files beside plain requests of io_uring
# (checkpoint_files_bench). With --python, an interpreter with PyTorch 2.4 or newer, PyTorch's asynchronous distributed
# checkpoint of as many bytes.
source "$(dirname "$0")/measuring.sh"
directory=/tmp rounds=3 steps=13 every=4 build=build/release python=
read_flags directory rounds steps every build python -- "$@"
random_tokens "$folder/tokens.bin" 200000 50257
checkpoints=$(mktemp -d "$directory/ranvier-checkpoint.XXXXXX")
trap 'rm -rf "$folder" "$checkpoints"' EXIT

names=("6x384" "gpt2-small")
models=("--layers 6 --hidden 384 --heads 6 --vocab-size 50257 --batch-size 32 --microbatch-size 4"
        "--model gpt2-small --batch-size 16 --microbatch-size 4")
train() {  # <model> <metrics> <flags…>
  # shellcheck disable=SC2086  # a model is words
  mpirun --oversubscribe --bind-to none -n 2 "$build/apps/ranvier-train" --data "$folder/tokens.bin" --tokenizer none \
    $1 --sequence-length 128 --threads 1 --steps "$steps" --clip 0 --metrics "$2" "${@:3}" "${more[@]}" \
    >"$folder/log" 2>&1 || { cat "$folder/log" >&2; exit 1; }
}
mean_of_steps() {  # <metrics>: but the first
  grep '"step"' "$1" >"$folder/steps"
  value seconds "$folder/steps" | awk 'NR > 1 { sum += $1 } END { print sum / (NR - 1) }'
}

memory_of_rank_0() {  # <planned|resident>: MiB, from the table at a run's end
  awk -v column="$([ "$1" = planned ] && echo 3 || echo 1)" '
    / rank +stage +row / { table = 1 }
    table && $1 == "0" { print $(NF - column) * ($(NF - column + 1) == "GiB" ? 1024 : 1); exit }' "$folder/log"
}

fio_rate() {  # <write|read> <engine> <depth> <flags…>: MB a second
  fio --name=disk --rw="$1" --ioengine="$2" --iodepth="$3" --bs=1M --direct=1 --group_reporting --output-format=json \
    "${@:4}" 2>"$folder/fio.errors" | sed -n '/^{/,$p' |
    way=$1 perl -MJSON::PP -0777 -ne 'print int decode_json($_)->{jobs}[0]{$ENV{way}}{bw_bytes} / 1e6'
}

write_rate() {  # {"bench": "fio write", …} of the fastest engine, on new files, as a checkpoint's are
  local engine rate best=0 fastest=none
  for engine in io_uring libaio psync; do
    # psync has one request under way in each of its jobs.
    local jobs=1
    [ $engine != psync ] || jobs=8
    rm -f "$checkpoints/fio"
    rate=$(fio_rate write $engine 32 --filename="$checkpoints/fio" --size=1G --numjobs=$jobs --end_fsync=1 \
      --offset_increment=$((1024 / jobs))M --io_size=$((1024 / jobs))M) || continue
    if ((rate > best)); then best=$rate fastest=$engine; fi
  done
  rm -f "$checkpoints/fio"
  printf '{"bench": "fio write", "engine": "%s", "mb_per_second": %d}\n' "$fastest" "$best"
}

read_rates() {  # <files…>: "engine,depth MB-a-second" for each of them
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

touch_memory() {  # <MiB>: which is free, and still the machine's own, for a second or two
  perl -e 'my $bytes = "\0" x ($ARGV[0] << 20)' "$1"
}

for ((round = 0; round < rounds; ++round)); do
  for i in "${!names[@]}"; do
    train "${models[$i]}" "$folder/metrics"
    mean_of_steps "$folder/metrics" >>"$folder/none-$i"
    for kind in planned resident; do memory_of_rank_0 $kind >>"$folder/$kind-none-$i"; done
    rm "$folder/metrics"
    train "${models[$i]}" "$folder/metrics" --checkpoint "$checkpoints" --checkpoint-every "$every" --resume none
    mean_of_steps "$folder/metrics" >>"$folder/with-$i"
    for kind in planned resident; do memory_of_rank_0 $kind >>"$folder/$kind-with-$i"; done
    # The last one is taken when no step follows.
    grep '"checkpoint"' "$folder/metrics" | head -n -1 >"$folder/records"
    for key in bytes seconds waited_seconds; do value "$key" "$folder/records" >>"$folder/$key-$i"; done
    # Nothing is left to train.
    touch_memory "$(tail -n 1 "$folder/resident-with-$i" | awk '{ printf "%d", 2 * $1 }')"
    train "${models[$i]}" "$folder/loaded" --resume "$checkpoints" --shard zero3
    sed -n 's/.*, read and verified .* in \([0-9.]*\) s$/\1/p' "$folder/log" >>"$folder/load-$i"
    if command -v fio >/dev/null; then
      newest=$(find "$checkpoints" -maxdepth 1 -name 'step-*' | sort | tail -n 1)
      read_rates "$newest"/rank-*.data >>"$folder/reads-$i"
    fi
    rm -r "$folder/metrics" "$folder/loaded" "${checkpoints:?}"/*
  done
done
for i in "${!names[@]}"; do
  read -r fio fio_rate < <([ ! -f "$folder/reads-$i" ] || fastest_of "$folder/reads-$i") || true
  awk -v fio="${fio:-none}" -v fio_rate="${fio_rate:-0}" -v name="${names[$i]}" \
    -v none="$(median "$folder/none-$i")" -v with="$(median "$folder/with-$i")" \
    -v bytes="$(median "$folder/bytes-$i")" -v seconds="$(median "$folder/seconds-$i")" \
    -v waited="$(median "$folder/waited_seconds-$i")" -v load="$(median "$folder/load-$i")" \
    -v planned="$(median "$folder/planned-none-$i")" -v planned_with="$(median "$folder/planned-with-$i")" \
    -v resident="$(median "$folder/resident-none-$i")" -v resident_with="$(median "$folder/resident-with-$i")" \
    'BEGIN { printf "{\"model\": \"%s\", \"seconds\": %.4f, \"with_checkpoints\": %.4f, \"over_none\": %.3f, ", name, none, with, with / none
             printf "\"checkpoint_mib\": %.0f, \"checkpoint_seconds\": %.3f, \"mib_per_second\": %.0f, ", bytes / 1048576, seconds, bytes / 1048576 / seconds
             printf "\"waited_seconds\": %.4f, \"waited_of_a_step\": %.4f, ", waited, waited / none
             printf "\"planned_mib_more\": %.1f, \"resident_mib_more\": %.1f, ", planned_with - planned, resident_with - resident
             printf "\"load_seconds\": %.3f, \"load_mb_per_second\": %.0f", load, bytes / 1e6 / load
             if (fio_rate > 0) printf ", \"fio_read\": \"%s\", \"fio_read_mb_per_second\": %d, \"load_of_fio\": %.3f", fio, fio_rate, bytes / 1e6 / load / fio_rate
             print "}" }'
done
command -v fio >/dev/null && write_rate
"$build/tests/bench/checkpoint_files_bench" "$checkpoints" 1024 "$rounds" | tail -n 3
if [ -n "$python" ]; then
  "$python" tests/bench/pytorch_checkpoint.py --directory "$checkpoints" --mib "$(($(sort -n "$folder/bytes-1" | tail -1) / 1048576))"
fi
