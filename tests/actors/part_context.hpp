// What a part of a rank is made from, without the rank: for tests of one part.
#pragma once

#include "actors/rank/rank_context.hpp"

namespace ranvier::tests {

class PartContext {
 public:
  /// As RankResources.
  template <class... Arguments>
  explicit PartContext(Arguments&&... arguments) : resources_(std::forward<Arguments>(arguments)...) {}

  [[nodiscard]] const actors::RankContext& operator*() const noexcept { return resources_.context(); }
  [[nodiscard]] const actors::RankContext* operator->() const noexcept { return &resources_.context(); }

 private:
  actors::RankResources resources_;
};

}  // namespace ranvier::tests
