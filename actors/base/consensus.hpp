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
  Consensus(runtime::EventLoop& loop, runtime::Transport& transport);
  /// `staging`: receive buffer that several objects may share if nothing reads the values; must outlive this object.
  Consensus(runtime::EventLoop& loop, runtime::Transport& transport, std::vector<double>& staging);

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
  std::vector<double> own_staging_;
  std::vector<double>* staging_;
  std::shared_ptr<const std::vector<collectives::RankSchedule>> schedules_;
  std::optional<runtime::Duration> since_;  // start of the current agreement
};

}  // namespace ranvier::actors
