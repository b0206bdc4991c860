// The sum of the two uses of a tied unit whose gradients are in a tier: of two layers of this stage, or of this
// stage and another one, which both add the same two numbers. Stretches of records go through a few places on the
// device: fetch, exchange or fetch, add, store. Both stages take the same stretches in one order. Loop thread only.
#pragma once

#include "actors/gradients/gradient_tier.hpp"
#include "runtime/transport.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace ranvier::actors {

class UseSum {
 public:
  struct Options {
    std::size_t unit = 0;        ///< of the stage
    std::uint32_t tag = 0;       ///< of the unit, the same on both stages
    std::optional<int> partner;  ///< the rank that has the other use; none: it is use 1 of this stage
    runtime::DType dtype = runtime::DType::f32;
    std::size_t message_bytes = 0;   ///< whole blocks
    std::vector<std::byte*> places;  ///< of place_bytes() each, on the device
  };
  [[nodiscard]] static std::size_t place_bytes(std::size_t message_bytes) noexcept { return 2 * message_bytes; }

  /// `stream` adds. All references outlive this.
  UseSum(runtime::EventLoop& loop, runtime::Transport& transport, GradientTier& tier, runtime::StreamView stream,
         Options options);

  /// Leaves the sum with use 0; `done` runs on the loop, after this returned. Both uses are complete on this stage.
  void run(runtime::Handler done);


 private:
  struct Part {
    std::byte* mine = nullptr;  // null until it was fetched
    int missing = 2;            // before it is added: what is mine left or came, what is the other's came
  };

  void begin_next(std::byte* place);
  void send_fetched();
  void one_there(std::size_t number, std::byte* place);

  runtime::EventLoop* loop_;
  runtime::Transport* transport_;
  GradientTier* tier_;
  runtime::StreamView stream_;
  Options options_;
  std::vector<GradientTier::Stretch> stretches_;
  std::vector<Part> parts_;  // likewise
  std::size_t begun_ = 0;
  std::size_t sent_ = 0;
  std::size_t stored_ = 0;
  runtime::Handler done_;
};

}  // namespace ranvier::actors
