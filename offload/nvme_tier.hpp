// Interface of tiers in files: FileTier, or VirtualFiles in virtual time. Loop thread only.
#pragma once

#include "offload/tier.hpp"
#include "runtime/liveness/pending_work.hpp"

#include <functional>
#include <memory>

namespace ranvier::offload {

class NvmeTier : public Tier, public runtime::ProgressSource {
 public:
  using Tier::start;
  /// For checksums that another object added to the plan as `sums`.
  virtual void start(const runtime::Arena& arena, runtime::MemoryId sums) = 0;

  /// Test only: the next request never completes.
  virtual void lose_next_request() noexcept = 0;
  /// Number of leftover folders of dead jobs that start() removed.
  [[nodiscard]] virtual int cleared() const = 0;
};

/// Creates the tier of a rank. The loop must outlive it.
using MakeNvmeTier = std::function<std::unique_ptr<NvmeTier>(runtime::EventLoop& loop, int rank)>;

}  // namespace ranvier::offload
