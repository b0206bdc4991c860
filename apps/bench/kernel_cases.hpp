// Timed operations of each kind of work, and matrix multiplications of linear layers, forward and backward. Pure
// except for queueing; loop thread only.
#pragma once

#include "apps/bench/work_timer.hpp"
#include "runtime/device/work_cost.hpp"

#include <cstdint>
#include <vector>

namespace ranvier::apps {

/// Shape [rows, channels] of arrays. Channels are a multiple of 64; rows do not exceed the number of tokens.
struct KernelSize {
  std::size_t rows = 0;
  std::size_t channels = 0;
};

/// Input tokens in device memory, each below `vocab_size`.
struct KernelTokens {
  static constexpr std::size_t vocab_size = 1024;
  const std::int32_t* data = nullptr;
  std::size_t count = 0;
};

struct KernelCase {
  runtime::WorkKind kind = runtime::WorkKind::elementwise;
  ProfiledWork work;  ///< forward pass, and backward pass if there is one
};

/// Cases of all kinds except matrix multiplications, copies between device and host, and samples. `threads`: the
/// device's.
[[nodiscard]] std::vector<KernelCase> kernel_cases(runtime::DType dtype, const KernelSize& size,
                                                   const KernelTokens& tokens, int threads);
/// Additions only, as for received chunks.
[[nodiscard]] ProfiledWork additions(runtime::DType dtype, const KernelSize& size);
/// AdamW with gradients of `dtype`, and with a working copy of `dtype` unless `weights` has the same type. `weights`:
/// fp32 or bf16; `moments`: fp32, bf16 or int8.
[[nodiscard]] ProfiledWork optimizer_step(runtime::DType dtype, const KernelSize& size, runtime::DType weights,
                                          runtime::DType moments);

struct ProductCase {
  runtime::ProductShape shape;
  ProfiledWork work;
};

/// Ascending numbers of tokens and channels, timed in all combinations. The middle elements are the medium sizes.
struct ProductSizes {
  std::vector<std::size_t> tokens;
  std::vector<std::size_t> channels;
  std::size_t vocab_size = 0;
};

/// For each combination: both layers of an MLP, from C to 4C channels and back. Each has y = x · W, dx = dy · Wᵀ
/// and dW += xᵀ · dy (fp32), stored as in layers. Then a head with the vocabulary and medium sizes. The first case is
/// the smallest; the last one is square with 3/4 of the largest channels.
[[nodiscard]] std::vector<ProductCase> product_cases(runtime::DType dtype, const ProductSizes& sizes);

}  // namespace ranvier::apps
