#!/usr/bin/env bash
# Kernels of a training step on a GPU, costliest first: from nsys, or without nsys, the times of ops_bench
# multiplied by the operations per step.
#
#   tests/bench/kernels_gpu.sh [--model gpt2|1.3B] [--steps 12] [--most 25] [--operations FILE] [--device cuda:0]
#                              [--build build/gpu]
#
# One JSON line per kernel: `share` of all kernels' time. Operations also have the share of their ceiling (`of_ceiling`)
# and `held_back`: how much shorter a microbatch would be at the ceiling. --operations: output of an earlier
# `ops_bench cuda bf16`, used in place of nsys.
source "$(dirname "$0")/measuring.sh"
model=1.3B steps=12 most=25 operations= device=cuda:0 build=build/gpu
read_flags model steps most operations device build -- "$@"
case "$model" in
  gpt2) layers=12 hidden=768 heads=12 length=1024 batch=16 ;;
  1.3B) layers=24 hidden=2048 heads=16 length=2048 batch=4 ;;
  *) echo "--model $model: gpt2 or 1.3B" >&2; exit 2 ;;
esac

if [ -z "$operations" ] && command -v nsys >/dev/null; then
  random_tokens "$folder/tokens" $((16 * batch * length + 1)) 50257
  nsys profile --trace=cuda,nvtx --sample=none --cpuctxsw=none --force-overwrite=true --output="$folder/profile" \
    "$build/apps/ranvier-train" --data "$folder/tokens" --tokenizer none --layers "$layers" --hidden "$hidden" \
    --heads "$heads" --vocab-size 50257 --sequence-length "$length" --batch-size "$batch" --microbatch-size "$batch" \
    --steps "$steps" --precision bf16 --device "$device" >"$folder/log" 2>&1 || { tail -5 "$folder/log" >&2; exit 1; }
  # Columns: time (%), total ns, instances, average, median, min, max, deviation, name. Quoted names have commas.
  nsys stats --quiet --force-export=true --report cuda_gpu_kern_sum --format csv "$folder/profile.nsys-rep" |
    awk -F, -v most="$most" -v model="$model" 'NR > 1 && $1 + 0 > 0 && n++ < most {
      name = $0
      for (i = 0; i < 8; ++i) sub(/^[^,]*,/, "", name)
      gsub(/[\\"]/, "", name)
      printf "{\"bench\": \"kernels_gpu\", \"model\": \"%s\", \"kernel\": \"%s\", \"calls\": %d, \"us\": %.1f, \"share\": %.3f}\n",
             model, substr(name, 1, 120), $3, $4 / 1000, $1 / 100
    }
    END { if (!n) { print "kernels_gpu.sh: nsys printed no kernel" >"/dev/stderr"; exit 1 } }'
  exit
fi

if [ -z "$operations" ]; then
  operations=$folder/operations
  "$build/tests/bench/ops_bench" cuda bf16 >"$operations"
fi
# If only a factor of their sizes differs, one operation represents the other.
awk -v model="$model" -v layers="$layers" -v most="$most" '
  function say(name, us, of_ceiling) { lines[++count] = name; time[count] = us; ceiling[count] = of_ceiling; all += us }
  function field(key) { return match($0, "\"" key "\":[^,\"}]*") ? substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 3) : "" }
  function word(key) { return match($0, "\"" key "\":\"[^\"]*") ? substr($0, RSTART + length(key) + 4, RLENGTH - length(key) - 4) : "" }
  FNR == NR { split($0, part, "|"); wanted[++wishes] = part[1]; source[wishes] = part[2]; times[wishes] = part[3] * (part[4] == "L" ? layers : 1) + part[5]; next }
  word("bench") == "operation" && word("model") == model { us[word("operation")] = field("us"); share[word("operation")] = field("share_of_copy") field("share_of_matmul") }
  END {
    for (i = 1; i <= wishes; ++i) {
      if (us[source[i]] == "" || share[source[i]] == "") { print "ops_bench printed no time or share of \"" source[i] "\" for " model > "/dev/stderr"; exit 1 }
      say(wanted[i], times[i] * us[source[i]], share[source[i]])
    }
    for (shown = 0; shown < most && shown < count; ++shown) {
      best = 0
      for (i = 1; i <= count; ++i) if (!(i in done) && (!best || time[i] > time[best])) best = i
      done[best] = 1
      spare = time[best] * (1 - (ceiling[best] < 1 ? ceiling[best] : 1)) / all
      printf "{\"bench\": \"kernels_gpu\", \"model\": \"%s\", \"operation\": \"%s\", \"us_a_microbatch\": %.0f, \"share\": %.3f, \"of_ceiling\": %.3f, \"held_back\": %.3f}\n",
             model, lines[best], time[best], time[best] / all, ceiling[best], spare
    }
  }' - "$operations" <<'END'
layer norms, forward|layer_norm_forward with sum|2|L|1
layer norms, backward|layer_norm_backward with residual|2|L|1
qkv, forward|qkv forward|1|L|0
attention, forward|attention_forward|1|L|0
attention's projection, forward|attention projection forward|1|L|0
fc with GELU, forward|fc forward with GELU, as measured|1|L|0
mlp's projection with residual, forward|mlp projection forward with addend, as measured|1|L|0
head, forward|head forward|1||0
cross entropy|cross_entropy with gradient|1||0
head, backward of input and weight|head forward|2||0
mlp's projection, backward of input with GELU's gradient|mlp projection backward of input with GELU's gradient, as measured|1|L|0
mlp's projection, backward of weight|fc backward of weight|1|L|0
fc, backward of input|fc backward of input|1|L|0
fc, backward of weight and bias|fc backward of weight and bias, as measured|1|L|0
attention's projection, backward of input|attention projection forward|1|L|0
attention's projection, backward of weight|projection backward of weight|1|L|0
attention, backward|attention_backward|1|L|0
qkv, backward of input|fc backward of input|0.75|L|0
qkv, backward of weight|fc backward of weight|0.75|L|0
biases' gradients of qkv and both projections|column_sums of 1 C|5|L|0
embedding, forward|embedding_forward|1||0
embedding, backward|embedding_backward|1||0
END
