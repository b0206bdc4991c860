# What is labelled `gpu`, or with words before it the kernels' tests only: tests.sh compute-sanitizer --tool memcheck …
failed=0
for program in "$build"/tests/*/ranvier_*_gpu_*test*; do
  [ -f "$program" ] && [ -x "$program" ] || continue
  [ $# -eq 0 ] || [[ $program == *_gpu_tests ]] || continue  # the others fail on purpose
  echo "-- $(basename "$program")"
  begin=$SECONDS status=0
  "$@" "$program" ${tiny:+"--test-case=*GELU*,*copy*"} || status=$?
  printf '{"bench": "tests", "tool": "%s", "program": "%s", "status": %d, "seconds": %d}\n' "${3:-none}" \
    "$(basename "$program")" "$status" $((SECONDS - begin))
  failed=$((failed + (status != 0)))
done
exit "$failed"
