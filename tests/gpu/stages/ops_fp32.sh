# Every operation in fp32.
"$build/tests/bench/ops_bench" cuda fp32 ${tiny:+tiny}
