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

  void lose_next_request() noexcept override {}
  [[nodiscard]] int cleared() const override { return 0; }
  [[nodiscard]] std::string description() const override { return "simulated"; }
  [[nodiscard]] std::string place() const override { return "simulated files"; }
  [[nodiscard]] std::uint64_t done() const noexcept override { return transfers_; }

 protected:
  void allocate(std::uint64_t bytes, std::span<std::uint64_t>) override { bytes_.resize(bytes); }
  void move_blocks(IoKind kind, std::uint64_t address, std::span<std::byte> memory,
                   runtime::Handler done) override {
    const bool reads = kind == IoKind::read;
    const std::span<std::byte> stored = std::span(bytes_).subspan(address, memory.size());
    const auto from = reads ? stored : memory, to = reads ? memory : stored;
    std::fill(to.begin(), to.end(), reads ? std::byte{0xA5} : std::byte{0x5A});
    loop_.after(delay_(), [this, from, to, done = std::move(done)] {
      std::copy(from.begin(), from.end(), to.begin());
      ++transfers_;
      done();
    });
  }

 private:
  runtime::EventLoop& loop_;
  std::function<runtime::Duration()> delay_;
  std::vector<std::byte> bytes_;
  std::uint64_t transfers_ = 0;  // completed
};

}  // namespace ranvier::offload::tests
