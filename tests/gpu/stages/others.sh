# Other trainers: starts each program of --others in that folder. A program prints its tokens per second as `123 tok/s`,
# `123 tokens/s` or `tps 123`, with a k for thousands. The figure is the median without the first two.
[ -n "$others" ] || { echo "others: --others FOLDER names no folder of programs: nothing to do"; exit 0; }
failed=0
cd "$others"
for program in ./*; do
  [ -f "$program" ] && [ -x "$program" ] || continue
  echo "-- $program"
  said=$(mktemp) status=0
  timeout --kill-after=5 90 "$program" 2>&1 | tee "$said" || status=${PIPESTATUS[0]}
  perl -e 'my ($name, $status) = splice @ARGV, 0, 2;
           my @rates;
           while (<>) {
             push @rates, $1 * ($2 ? 1000 : 1) if /([\d.]+)\s*(k?)\s*tok(?:en)?s?\/s/i or /\btps\s*:?\s*([\d.]+)\s*(k?)/i;
           }
           splice @rates, 0, 2 if @rates > 4;
           @rates = sort { $a <=> $b } @rates;
           printf qq({"bench": "others", "program": "%s", "status": %d, "tokens_per_second": %s}\n), $name =~ s/^\.\///r,
                  $status, @rates ? $rates[$#rates / 2] : "null"' "$program" "$status" "$said"
  rm "$said"
  [ "$status" -eq 0 ] || failed=1
done
exit "$failed"
