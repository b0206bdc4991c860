// A tier keeps bytes that have left the device (file_tier.hpp). Regions are reserved before the first step, as the rest
// of a run's memory is; then ranges of them are fetched and stored.
//
//   const Region states = tier.reserve(MemoryKind::optimizer, "optimizer states", bytes);
//   tier.plan(plan);                                   // the memory that the tier itself needs
//   const Arena arena(device, plan);
//   tier.start(arena);                                 // takes the space, or throws
//   tier.fetch(states, offset, slot, [] { … });        // returns at once
//
// Loop thread only.
#pragma once

#include "runtime/arena.hpp"
#include "runtime/event_loop.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ranvier::offload {

/// Names a region of one tier.
struct Region {
  std::size_t index = 0;
};

class Tier {
 public:
  /// Bytes move in whole blocks, which is what files ask for that are read past the system's cache: offsets, addresses
  /// and lengths are multiples of it. Plan slots with whole_blocks(): an item of a plan whose slots are whole blocks
  /// starts on one.
  static constexpr std::size_t block_bytes = 4096;
  [[nodiscard]] static constexpr std::size_t whole_blocks(std::size_t bytes) {
    return (bytes + block_bytes - 1) / block_bytes * block_bytes;
  }

  virtual ~Tier() = default;
  Tier(const Tier&) = delete;
  Tier& operator=(const Tier&) = delete;

  /// Takes whole_blocks(bytes) when the tier starts; only before that. `name` is what people read in errors.
  Region reserve(runtime::MemoryKind kind, std::string name, std::size_t bytes);

  /// What all regions take.
  [[nodiscard]] std::size_t reserved_bytes() const noexcept;

  /// Adds the memory that this tier needs to a plan, once everything is reserved.
  virtual void plan(runtime::MemoryPlan& plan) = 0;
  /// Takes the space. `arena` is made from the plan and outlives the tier.
  virtual void start(const runtime::Arena& arena) = 0;

  // Several transfers may run at a time, in any order. Those that overlap in a region or in memory must not: wait for
  // `done`. Memory stays valid until `done` was called or the tier is gone. A region holds zeros at first. A transfer
  // that fails stops the loop with ErrorCode::io and never calls its `done`.

  /// Brings to.size() bytes from `offset` of the region; calls `done` on the loop, after this returned.
  void fetch(Region region, std::size_t offset, std::span<std::byte> to, runtime::Handler done);
  /// Puts from.size() bytes there, likewise. `from` may change once `done` was called, not before.
  void store(Region region, std::size_t offset, std::span<const std::byte> from, runtime::Handler done);

  /// Bytes of all fetches, and of all stores, so far, with those under way.
  [[nodiscard]] std::uint64_t fetched_bytes() const noexcept { return fetched_; }
  [[nodiscard]] std::uint64_t stored_bytes() const noexcept { return stored_; }

  /// For people, once started: "io_uring, O_DIRECT, 32 × 1.0 MiB, /nvme0, /nvme1".
  [[nodiscard]] virtual std::string description() const = 0;

 protected:
  struct Reserved {
    runtime::MemoryKind kind;
    std::string name;
    std::size_t bytes;  ///< whole blocks
  };

  Tier() = default;
  [[nodiscard]] const std::vector<Reserved>& regions() const noexcept { return regions_; }

  /// A tier calls this at the beginning of its start().
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

}  // namespace ranvier::offload
