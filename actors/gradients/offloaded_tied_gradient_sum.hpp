// Sum of two tied uses in a tier. Stretches of records pass through a few device buffers: fetch, exchange or fetch,
// add, store. Both stages have the same stretches in the same order.
#pragma once

#include "actors/gradients/gradient_records.hpp"
#include "actors/gradients/tied_gradient_sum.hpp"

#include <cstddef>
#include <optional>
#include <vector>

namespace ranvier::actors {

class OffloadedTiedGradientSum final : public TiedGradientSum {
 public:
  struct Options {
    std::size_t unit = 0;            ///< index in the stage
    std::optional<int> partner;      ///< rank of the other use; none: it is use 1 of this stage
    std::size_t message_bytes = 0;   ///< maximum message size, in whole blocks
    std::vector<std::byte*> places;  ///< device buffers of place_bytes() each
  };
  [[nodiscard]] static std::size_t place_bytes(std::size_t message_bytes) noexcept { return 2 * message_bytes; }

  /// All arguments must outlive this object.
  OffloadedTiedGradientSum(const RankContext& context, const UnitStates& states, GradientRecords& records,
                           Options options);

  void run(runtime::Handler done) override;
  [[nodiscard]] std::vector<Wait> waits() const override;

 private:
  /// A stretch in progress.
  struct Exchange {
    std::byte* mine = nullptr;  // null: not fetched yet
    int missing = 2;            // pending transfers before the addition, one per tied use
  };

  void begin_next(std::byte* place);
  void send_fetched();
  void one_there(std::size_t number, std::byte* place);

  runtime::EventLoop* loop_;
  runtime::Transport* transport_;
  runtime::StreamView stream_;
  const UnitState* unit_;
  GradientRecords* records_;
  Options options_;
  runtime::Tag tag_;
  runtime::DType dtype_;
  std::vector<GradientRecords::Stretch> stretches_;
  std::vector<Exchange> exchanges_;  // by stretch
  std::size_t begun_ = 0;
  std::size_t sent_ = 0;
  std::size_t stored_ = 0;
  runtime::Duration since_{};
  runtime::Handler done_;
};

}  // namespace ranvier::actors
