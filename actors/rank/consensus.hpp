// How all ranks decide alike: after a batch each contributes what it alone knows (sums of squares of its
// units, losses of its row, a wish to stop), and all get the same vector back. Every number has one
// contributor and the others give zero, so the sum is exact and the same in any order. Loop thread only.
#pragma once

#include "actors/rank/actor.hpp"
#include "collectives/executor.hpp"
#include "runtime/device.hpp"

#include <memory>
#include <optional>
#include <vector>

namespace ranvier::actors {

class Consensus : public Actor {
 public:
  Consensus(runtime::EventLoop& loop, runtime::Transport& transport);
  /// With memory for what arrives that others use as well, where nobody reads it. It outlives this.
  Consensus(runtime::EventLoop& loop, runtime::Transport& transport, std::vector<double>& staging);

  [[nodiscard]] const char* name() const noexcept override { return "agreement"; }
  [[nodiscard]] std::vector<Wait> waits() const override;
  /// Of the binomial tree.
  [[nodiscard]] std::vector<int> peers() const override;

  /// `values` has the same size on all ranks and must stay until `done`, which finds the sums there.
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
  std::optional<runtime::Duration> since_;  // of the one that is under way
};

}  // namespace ranvier::actors
