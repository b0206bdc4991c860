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

/// Also the files of Tiers, by FileOptions::make.
class SimulatedFiles final : public Tier {
 public:
  /// `delay` is drawn for each transfer.
  SimulatedFiles(runtime::EventLoop& loop, std::function<runtime::Duration()> delay)
      : loop_(loop), delay_(std::move(delay)) {}

  void start(const runtime::Arena&, runtime::MemoryId) override { start(); }
  void start() {
    close_reservations();
    for (const auto& region : regions()) bytes_.emplace_back(region.bytes, std::byte{0});
  }
  void lose_next_request() noexcept override {}
  [[nodiscard]] int cleared() const override { return 0; }
  [[nodiscard]] std::string description() const override { return "simulated"; }
  [[nodiscard]] std::string place() const override { return "simulated files"; }
  [[nodiscard]] std::uint64_t done() const noexcept override { return transfers_; }

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

 private:
  runtime::EventLoop& loop_;
  std::function<runtime::Duration()> delay_;
  std::vector<std::vector<std::byte>> bytes_;
  std::uint64_t transfers_ = 0;  // completed
};

}  // namespace ranvier::offload::tests
