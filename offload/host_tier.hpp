// A tier in host memory: regions are items of the memory plan, transfers are copies on streams, one for each
// direction, so that both go on at a time. On the `cpu` device the host is outside `--device-memory`.
#pragma once

#include "offload/tier.hpp"
#include "runtime/device.hpp"

#include <span>
#include <vector>

namespace ranvier::offload {

class HostTier final : public Tier {
 public:
  struct Streams {
    runtime::StreamView fetch;
    runtime::StreamView store;  ///< may be the same
  };

  /// `space` is pinned or host: a GPU copies from pinned memory without a detour. Loop and streams outlive the
  /// tier, and memory stays valid until the streams are synchronised where the tier goes in the middle of
  /// transfers.
  HostTier(runtime::EventLoop& loop, Streams streams, runtime::MemorySpace space = runtime::MemorySpace::pinned);

  void plan(runtime::MemoryPlan& plan) override;
  void start(const runtime::Arena& arena) override;
  [[nodiscard]] std::string description() const override;

  /// The region itself, once started: work on host threads needs no copy of it (`--optimizer-step host`).
  [[nodiscard]] std::span<std::byte> memory(Region region) const;

 protected:
  void fetch_blocks(Region region, std::size_t offset, std::span<std::byte> to, runtime::Handler done) override;
  void store_blocks(Region region, std::size_t offset, std::span<const std::byte> from,
                    runtime::Handler done) override;

 private:
  void copy(runtime::StreamView stream, std::byte* to, const std::byte* from, std::size_t bytes,
            runtime::Handler done);

  runtime::EventLoop& loop_;
  const Streams streams_;
  const runtime::MemorySpace space_;
  std::vector<runtime::MemoryId> items_;  // by region
  const runtime::Arena* arena_ = nullptr;
};

}  // namespace ranvier::offload
