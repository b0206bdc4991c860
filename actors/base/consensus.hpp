// All-reduce of a small vector, so that all ranks decide identically after a batch (squared norms, losses, stop
// requests). The sum is exact in any order for a number with one contributor and for the words of an ExactSum. Loop
// thread only.
#pragma once

#include "actors/base/actor.hpp"
#include "collectives/communicators/executor.hpp"
#include "runtime/device/device.hpp"

#include <memory>
#include <optional>
#include <vector>

namespace ranvier::actors {

class Consensus : public Actor {
 public:
  using Staging = std::shared_ptr<std::vector<double>>;
  /// `staging`: receive buffer; several objects may share it if nothing reads the values.
  Consensus(runtime::EventLoop& loop, runtime::Transport& transport,
            Staging staging = std::make_shared<std::vector<double>>());

  [[nodiscard]] const char* name() const noexcept override { return "agreement"; }
  [[nodiscard]] std::vector<Wait> waits() const override;
  /// Neighbours in the binomial tree.
  [[nodiscard]] std::vector<int> peers() const override;

  /// Replaces `values` by the sums over all ranks, then calls `done`. `values` has the same size on all
  /// ranks and must stay until then.
  virtual void agree(std::vector<double>& values, runtime::Handler done);

 private:
  runtime::EventLoop* loop_;
  runtime::Transport* transport_;
  std::unique_ptr<runtime::Device> host_;
  std::unique_ptr<runtime::Stream> stream_;
  collectives::Executor executor_;
  std::vector<int> members_;
  Staging staging_;
  std::shared_ptr<const std::vector<collectives::RankSchedule>> schedules_;
  std::optional<runtime::Duration> since_;  // start of the current agreement
};

}  // namespace ranvier::actors
