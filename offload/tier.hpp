// Storage for bytes in files: FileTier, or VirtualFiles in virtual time. It has one range of addresses, allocated
// before the first step like all memory of a run; then parts of it are moved. Loop thread only.
//
//   tier.start(bytes, sums);                              // allocates the space, or throws
//   tier.move(IoKind::read, address, slot, [] { … });     // returns at once
#pragma once

#include "offload/io_queue.hpp"
#include "runtime/base/arithmetic.hpp"
#include "runtime/liveness/pending_work.hpp"
#include "runtime/loop/event_loop.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace ranvier::offload {

/// Bytes read from and written to files so far, in complete blocks; including running transfers.
struct FileBytes {
  std::uint64_t read = 0, written = 0;
};

class Tier : public runtime::ProgressSource {
 public:
  /// Transfers move complete blocks, as O_DIRECT requires: addresses in the tier and in memory, and lengths, are
  /// multiples of block_bytes. Plan slots with whole_blocks(), so each starts on a block.
  static constexpr std::size_t block_bytes = 4096;
  [[nodiscard]] static constexpr std::size_t whole_blocks(std::size_t bytes) {
    return runtime::round_up(bytes, block_bytes);
  }

  Tier(const Tier&) = delete;
  Tier& operator=(const Tier&) = delete;

  /// Allocates `bytes`, complete blocks that are zeros at first. `sums`: BlockChecksums::count(bytes) zeros, which must
  /// outlive the tier; only for a tier with checksums.
  void start(std::uint64_t bytes, std::span<std::uint64_t> sums = {});

  /// Reads or writes memory.size() bytes at `address`; calls `done` on the loop, after this returned.
  ///
  /// Several transfers may run at the same time, in any order, unless they overlap in the tier or in memory: wait for
  /// `done` then. Memory must stay valid, and unchanged if it is written, until `done` or the tier's end. A failed
  /// transfer stops the loop with ErrorCode::io and never calls `done`.
  void move(IoKind kind, std::uint64_t address, std::span<std::byte> memory, runtime::Handler done);

  [[nodiscard]] const FileBytes& moved() const noexcept { return moved_; }

  /// Description for the user, after start(): "io_uring, O_DIRECT, 32 × 1.0 MiB, /nvme0, /nvme1".
  [[nodiscard]] virtual std::string description() const = 0;

  /// Test only: the next request never completes.
  virtual void lose_next_request() noexcept = 0;
  /// Number of leftover folders of dead jobs that start() removed.
  [[nodiscard]] virtual int cleared() const = 0;

 protected:
  Tier() = default;

  virtual void allocate(std::uint64_t bytes, std::span<std::uint64_t> sums) = 0;
  virtual void move_blocks(IoKind kind, std::uint64_t address, std::span<std::byte> memory,
                           runtime::Handler done) = 0;

 private:
  std::optional<std::uint64_t> bytes_;  ///< after start()
  FileBytes moved_;
};

/// Creates the tier of a rank. The loop must outlive it.
using MakeTier = std::function<std::unique_ptr<Tier>(runtime::EventLoop& loop, int rank)>;

}  // namespace ranvier::offload
