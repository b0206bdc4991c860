// Timed matrix multiplications: linear layers, forward and backward. Pure except for queueing; loop thread only.
#pragma once

#include "apps/bench/work_timer.hpp"
#include "runtime/device/work_cost.hpp"

#include <cstddef>
#include <vector>

namespace ranvier::apps {

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

/// For each combination: both layers of an MLP, from C to 4C channels and back. Each has y = x · W, dx = dy · Wᵀ and
/// dW += xᵀ · dy (fp32), stored as in layers. Then a head with the vocabulary and medium sizes. The first case is the
/// smallest; the last one is square with 3/4 of the largest channels.
[[nodiscard]] std::vector<ProductCase> product_cases(runtime::DType dtype, const ProductSizes& sizes);

}  // namespace ranvier::apps
