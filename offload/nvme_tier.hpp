// What Tiers ask of a tier whose regions are in files: FileTier, or VirtualFiles where time is virtual. Loop thread
// only.
#pragma once

#include "offload/tier.hpp"
#include "runtime/pending_work.hpp"

#include <functional>
#include <memory>

namespace ranvier::offload {

class NvmeTier : public Tier, public runtime::ProgressSource {
 public:
  using Tier::start;
  /// Where checksums are an item of the plan that somebody else added.
  virtual void start(const runtime::Arena& arena, runtime::MemoryId sums) = 0;

  /// Test only: the next request does not come back.
  virtual void lose_next_request() noexcept = 0;
  /// Folders that dead jobs had left in the directories, and start() removed.
  [[nodiscard]] virtual int cleared() const = 0;
};

/// Makes the one of a rank. The loop outlives it.
using MakeNvmeTier = std::function<std::unique_ptr<NvmeTier>(runtime::EventLoop& loop, int rank)>;

}  // namespace ranvier::offload
