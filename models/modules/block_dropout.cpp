#include "models/modules/block_dropout.hpp"

#include "runtime/kernels/elementwise.hpp"

namespace ranvier::models {

Dropout BlockDropout::rule(const LayerCall& call, DropoutSite place) const {
  return dropout_at(call, call.training ? rate_ : 0.0f, dropout_site(block_, place));
}

void BlockDropout::drop(const LayerCall& call, std::byte* branch, DropoutSite place) const {
  dropout(call.stream, branch, dtype_, call.shape.samples,
          static_cast<std::size_t>(call.shape.positions) * channels_, rule(call, place));
}

void BlockDropout::drop_and_add(const LayerCall& call, std::byte* branch, DropoutSite place,
                                const std::byte* addend) const {
  drop(call, branch, place);
  runtime::add(call.stream, branch, addend, dtype_, rows(call) * channels_);
}

void BlockDropout::branch_gradient(const LayerCall& call, std::byte* to, const std::byte* d_sum,
                                   DropoutSite place) const {
  if (to == d_sum) return;
  runtime::copy(call.stream, to, d_sum, rows(call) * channels_ * size_of(dtype_));
  drop(call, to, place);
}

}  // namespace ranvier::models
