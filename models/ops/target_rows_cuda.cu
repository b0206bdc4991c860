// A block gathers a sample's positions. Each thread counts the targets of consecutive positions; the counts of earlier
// threads give its first place. Rows are copied in the widest possible words.
#include "models/ops/bad_token.hpp"
#include "models/ops/bad_token_cuda.hpp"
#include "models/ops/cross_entropy.hpp"
#include "models/ops/cuda_vector.cuh"
#include "models/ops/target_rows.hpp"

namespace ranvier::models {
namespace {

constexpr int threads = 128;

__global__ void __launch_bounds__(threads)
    choose_kernel(TargetRows shape, std::int32_t* places, std::int32_t* chosen_targets, const std::int32_t* targets,
                  volatile unsigned long long* bad_place) {
  __shared__ std::int32_t counts[threads];
  const int T = static_cast<int>(shape.positions), run = (T - 1) / threads + 1;
  const int own = static_cast<int>(threadIdx.x);
  const int begin = min(own * run, T), end = begin + min(run, T - begin);
  const std::size_t F = shape.chosen;
  targets += blockIdx.x * shape.positions;
  places += blockIdx.x * F;
  chosen_targets += blockIdx.x * F;
  int count = 0;
  for (int t = begin; t < end; ++t) count += targets[t] != no_target ? 1 : 0;
  counts[own] = count;
  __syncthreads();
  int before = 0, all = 0;
  for (int other = 0; other < threads; ++other) {
    before += other < own ? counts[other] : 0;
    all += counts[other];
  }
  auto with = static_cast<std::size_t>(before), without = static_cast<std::size_t>(all + begin - before);
  for (int t = begin; t < end; ++t) {
    const std::int32_t target = targets[t];
    const std::size_t at = target != no_target ? with++ : without++;
    if (at >= F) continue;
    places[at] = t;
    chosen_targets[at] = target;
  }
  if (own == 0 && static_cast<std::size_t>(all) > F) *bad_place = cuda::bad_token(blockIdx.x, all);
}

template <bool scatters, typename Word>
__global__ void __launch_bounds__(threads)
    copy_kernel(TargetRows shape, Word* to, const Word* from, const std::int32_t* places, std::size_t words) {
  const std::size_t at = std::size_t{blockIdx.x} * threads + threadIdx.x;
  const std::size_t row = at / words, word = at % words;
  if (row >= shape.samples * shape.chosen) return;
  const std::size_t place = row / shape.chosen * shape.positions + static_cast<std::size_t>(places[row]);
  if constexpr (scatters) {
    to[place * words + word] = from[row * words + word];
  } else {
    to[row * words + word] = from[place * words + word];
  }
}

template <bool scatters>
void copy_rows(runtime::StreamView stream, const TargetRows& shape, void* to, const void* from,
               const std::int32_t* places, std::size_t row_bytes) {
  const auto copy_words = [&]<typename Word>(Word) {
    const std::size_t words = row_bytes / sizeof(Word);
    cuda::launch_each<threads>(scatters ? "scatter_rows" : "gather_rows", stream, shape.rows() * words,
                               copy_kernel<scatters, Word>, shape, to, from, places, words);
  };
  if (row_bytes % sizeof(uint4) == 0 && cuda::aligned(to) && cuda::aligned(from)) {
    copy_words(uint4{});
  } else {
    copy_words(std::uint16_t{});
  }
}

}  // namespace

void choose_rows_cuda(runtime::StreamView stream, const TargetRows& shape, std::int32_t* places,
                      std::int32_t* chosen_targets, const std::int32_t* targets) {
  if (shape.all() == 0) return;
  auto* const bad_place = cuda::bad_token_place(cuda::TokenUse::targets);
  cuda::launch("choose_rows", stream, {cuda::blocks_of(shape.samples, 1), threads}, choose_kernel, shape, places,
               chosen_targets, targets, bad_place);
  cuda::expect_no_bad_token(stream, cuda::TokenUse::targets, [F = shape.chosen](std::int32_t count, std::size_t b) {
    fail_many_targets(static_cast<std::size_t>(count), b, F);
  });
}

void gather_rows_cuda(runtime::StreamView stream, const TargetRows& shape, void* to, const void* from,
                      const std::int32_t* places, std::size_t row_bytes) {
  copy_rows<false>(stream, shape, to, from, places, row_bytes);
}

void scatter_rows_cuda(runtime::StreamView stream, const TargetRows& shape, void* to, const void* from,
                       const std::int32_t* places, std::size_t row_bytes) {
  copy_rows<true>(stream, shape, to, from, places, row_bytes);
}

}  // namespace ranvier::models
