# Every operation in fp32.
"$build/tests/bench/ops_bench_cuda" fp32 ${tiny:+tiny}
