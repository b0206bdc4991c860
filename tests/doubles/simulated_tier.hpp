// A tier under virtual time: transfers take random delays and overtake each other. Memory is used as files may use it:
// a fetched buffer holds noise until completion; a stored one is read at the end.
#pragma once

#include "offload/tier.hpp"
#include "runtime/loop/event_loop.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace ranvier::offload::tests {

template <class Base>
class WithDelays : public Base {
 public:
  /// `delay` is drawn for each transfer.
  WithDelays(runtime::EventLoop& loop, std::function<runtime::Duration()> delay)
      : loop_(loop), delay_(std::move(delay)) {}

  void plan(runtime::MemoryPlan&) override {}
  void start(const runtime::Arena&) override { start(); }
  void start() {
    this->close_reservations();
    for (const auto& region : this->regions()) bytes_.emplace_back(region.bytes, std::byte{0});
  }
  [[nodiscard]] std::string description() const override { return "simulated"; }

  [[nodiscard]] std::vector<std::vector<std::byte>>& bytes() { return bytes_; }

 protected:
  void fetch_blocks(Region region, std::size_t offset, std::span<std::byte> to, runtime::Handler done) override {
    std::fill(to.begin(), to.end(), std::byte{0xA5});
    loop_.after(delay_(), [this, region, offset, to, done = std::move(done)] {
      std::copy_n(bytes_[region.index].begin() + static_cast<std::ptrdiff_t>(offset), to.size(), to.begin());
      ++transfers_;
      done();
    });
  }
  void store_blocks(Region region, std::size_t offset, std::span<const std::byte> from,
                    runtime::Handler done) override {
    std::fill_n(bytes_[region.index].begin() + static_cast<std::ptrdiff_t>(offset), from.size(), std::byte{0x5A});
    loop_.after(delay_(), [this, region, offset, from, done = std::move(done)] {
      std::copy(from.begin(), from.end(), bytes_[region.index].begin() + static_cast<std::ptrdiff_t>(offset));
      ++transfers_;
      done();
    });
  }

  /// Number of completed transfers.
  [[nodiscard]] std::uint64_t transfers() const noexcept { return transfers_; }

 private:
  runtime::EventLoop& loop_;
  std::function<runtime::Duration()> delay_;
  std::vector<std::vector<std::byte>> bytes_;
  std::uint64_t transfers_ = 0;
};

using SimulatedTier = WithDelays<Tier>;

/// Factory that Tiers accept for files (FileOptions::make).
class SimulatedFiles final : public WithDelays<NvmeTier> {
 public:
  using WithDelays<NvmeTier>::WithDelays;
  using WithDelays<NvmeTier>::start;
  void start(const runtime::Arena& arena, runtime::MemoryId) override { start(arena); }
  void lose_next_request() noexcept override {}
  [[nodiscard]] int cleared() const override { return 0; }
  [[nodiscard]] std::string place() const override { return "simulated files"; }
  [[nodiscard]] std::uint64_t done() const noexcept override { return transfers(); }
};

}  // namespace ranvier::offload::tests
