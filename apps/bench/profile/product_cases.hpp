// Which matrix products a profile times: those of linear layers, forward and backward. Pure but for what queueing does;
// loop thread only.
#pragma once

#include "apps/bench/profile/work_timer.hpp"
#include "runtime/work_cost.hpp"

#include <cstddef>
#include <vector>

namespace ranvier::apps {

struct ProductCase {
  runtime::ProductShape shape;
  ProfiledWork work;
};

/// From small to large numbers of tokens and channels, in all combinations; those in the middle are the medium ones.
struct ProductSizes {
  std::vector<std::size_t> tokens;
  std::vector<std::size_t> channels;
  std::size_t vocab_size = 0;
};

/// For each combination the two layers of an MLP, from C to 4C channels and back: y = x · W, dx = dy · Wᵀ and
/// dW += xᵀ · dy in fp32, each stored as layers store them; the same of a head with that vocabulary and the medium ones
/// of the other sizes. The first one is the smallest, the last one a square of 3/4 of the largest channels.
[[nodiscard]] std::vector<ProductCase> product_cases(runtime::DType dtype, const ProductSizes& sizes);

}  // namespace ranvier::apps
