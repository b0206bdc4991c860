// Storage for bytes in files: FileTier, or VirtualFiles in virtual time. Regions are reserved before the first step,
// like all memory of a run; then ranges of them are fetched and stored. Loop thread only.
//
//   const Region states = tier.reserve(MemoryKind::optimizer, "optimizer states", bytes);
//   tier.start(arena, sums);                           // allocates the space, or throws
//   tier.fetch(states, offset, slot, [] { … });        // returns at once
#pragma once

#include "runtime/base/arithmetic.hpp"
#include "runtime/device/arena.hpp"
#include "runtime/liveness/pending_work.hpp"
#include "runtime/loop/event_loop.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace ranvier::offload {

/// Names a region of one tier.
struct Region {
  std::size_t index = 0;
};

class Tier : public runtime::ProgressSource {
 public:
  /// Transfers move complete blocks, as O_DIRECT requires: offsets, addresses and lengths are multiples of
  /// block_bytes. Plan slots with whole_blocks(), so each starts on a block.
  static constexpr std::size_t block_bytes = 4096;
  [[nodiscard]] static constexpr std::size_t whole_blocks(std::size_t bytes) {
    return runtime::round_up(bytes, block_bytes);
  }

  Tier(const Tier&) = delete;
  Tier& operator=(const Tier&) = delete;

  /// Reserves whole_blocks(bytes), only before the tier starts. `name` appears in errors.
  Region reserve(runtime::MemoryKind kind, std::string name, std::size_t bytes);

  /// Allocates the space. `sums`: memory for checksums in the plan of `arena`, which must outlive the tier.
  virtual void start(const runtime::Arena& arena, runtime::MemoryId sums) = 0;

  // Several transfers may run at the same time, in any order, unless they overlap in a region or in memory: wait for
  // `done` then. Memory must stay valid until `done` or the tier's end. Regions are zero at first. A failed transfer
  // stops the loop with ErrorCode::io and never calls `done`.

  /// Reads to.size() bytes at `offset` of the region; calls `done` on the loop, after this returned.
  void fetch(Region region, std::size_t offset, std::span<std::byte> to, runtime::Handler done);
  /// Writes from.size() bytes at `offset`; like fetch(). `from` must not change until `done`.
  void store(Region region, std::size_t offset, std::span<const std::byte> from, runtime::Handler done);

  /// Bytes of all fetches and all stores so far, including running ones.
  [[nodiscard]] std::uint64_t fetched_bytes() const noexcept { return fetched_; }
  [[nodiscard]] std::uint64_t stored_bytes() const noexcept { return stored_; }

  /// Description for the user, after start(): "io_uring, O_DIRECT, 32 × 1.0 MiB, /nvme0, /nvme1".
  [[nodiscard]] virtual std::string description() const = 0;

  /// Test only: the next request never completes.
  virtual void lose_next_request() noexcept = 0;
  /// Number of leftover folders of dead jobs that start() removed.
  [[nodiscard]] virtual int cleared() const = 0;

 protected:
  struct Reserved {
    runtime::MemoryKind kind;
    std::string name;
    std::size_t bytes;  ///< complete blocks
  };

  Tier() = default;
  [[nodiscard]] const std::vector<Reserved>& regions() const noexcept { return regions_; }

  /// A tier calls this at the start of its start().
  void close_reservations() noexcept { started_ = true; }

  virtual void fetch_blocks(Region region, std::size_t offset, std::span<std::byte> to, runtime::Handler done) = 0;
  virtual void store_blocks(Region region, std::size_t offset, std::span<const std::byte> from,
                            runtime::Handler done) = 0;

 private:
  void check(const char* what, Region region, std::size_t offset, const std::byte* data, std::size_t bytes) const;

  std::vector<Reserved> regions_;
  std::uint64_t fetched_ = 0, stored_ = 0;
  bool started_ = false;
};

/// Creates the tier of a rank. The loop must outlive it.
using MakeTier = std::function<std::unique_ptr<Tier>(runtime::EventLoop& loop, int rank)>;

}  // namespace ranvier::offload
