// Dropout of a transformer block: attention weights, and the outputs of both branches before the residual addition.
// Stateless; any thread.
#pragma once

#include "models/ops/dropout.hpp"
#include "models/modules/layer_call.hpp"

#include <cstddef>
#include <cstdint>

namespace ranvier::models {

enum class DropoutSite : std::uint32_t { attention, attention_branch, mlp_branch };

/// Site numbers for make_dropout, distinct within a model.
inline constexpr std::uint32_t embedding_dropout_site = 0;
[[nodiscard]] constexpr std::uint32_t dropout_site(int block, DropoutSite place) {
  return 1 + 3 * static_cast<std::uint32_t>(block) + static_cast<std::uint32_t>(place);
}

class BlockDropout {
 public:
  /// For rows of `channels` values.
  BlockDropout(float rate, int block, std::size_t channels, runtime::DType dtype) noexcept
      : rate_(rate), block_(block), channels_(channels), dtype_(dtype) {}

  /// Whether training drops something, and whether this call does.
  [[nodiscard]] bool drops() const noexcept { return rate_ > 0; }
  [[nodiscard]] bool drops(const LayerCall& call) const noexcept { return call.training && drops(); }

  [[nodiscard]] Dropout rule(const LayerCall& call, DropoutSite place) const;
  /// branch[N, C] = dropped branch
  void drop(const LayerCall& call, std::byte* branch, DropoutSite place) const;
  /// branch[N, C] = dropped branch + addend[N, C]
  void drop_and_add(const LayerCall& call, std::byte* branch, DropoutSite place, const std::byte* addend) const;
  /// to[N, C] = gradient of a branch, from `d_sum`, the gradient of the residual sum. Both may be the same array if
  /// nothing is dropped.
  void branch_gradient(const LayerCall& call, std::byte* to, const std::byte* d_sum, DropoutSite place) const;

 private:
  float rate_;
  int block_;
  std::size_t channels_;
  runtime::DType dtype_;
};

}  // namespace ranvier::models
