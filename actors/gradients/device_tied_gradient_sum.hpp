// Sum of two tied uses on the device; the other stage's gradients arrive in several messages.
#pragma once

#include "actors/base/rank_context.hpp"
#include "actors/gradients/tied_gradient_sum.hpp"
#include "actors/states/unit_states.hpp"

#include <cstddef>
#include <optional>
#include <vector>

namespace ranvier::actors {

class DeviceTiedGradientSum final : public TiedGradientSum {
 public:
  struct Options {
    std::optional<int> partner;     ///< rank of the other use; none: it is use 1 of this stage
    std::size_t message_bytes = 0;  ///< maximum message size
    std::vector<std::byte*>
        places;  ///< device buffers of message_bytes each; their number limits messages in flight
  };
  /// All arguments must outlive this object.
  DeviceTiedGradientSum(const RankContext& context, const UnitState& unit, Options options);

  void run(runtime::Handler done) override;
  [[nodiscard]] std::vector<Wait> waits() const override;

 private:
  void exchange_next(std::byte* place);

  runtime::EventLoop* loop_;
  runtime::Transport* transport_;
  runtime::StreamView stream_;
  const UnitState* unit_;
  Options options_;
  std::size_t message_elements_;
  std::size_t begun_ = 0, missing_ = 0;  // messages
  runtime::Duration since_{};
  runtime::Handler done_;
};

}  // namespace ranvier::actors
