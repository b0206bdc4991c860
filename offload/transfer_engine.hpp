// Executes transfers of a striped address space over files. Splits them into requests, keeps up to `depth` in flight
// on an IoQueue, checks each count, continues after short ones and retries after EINTR and EAGAIN. Transfers start in
// the order of start(), on a separate thread that posts completions.
#pragma once

#include "offload/block_checksums.hpp"
#include "offload/io_queue.hpp"
#include "offload/stripes.hpp"
#include "runtime/loop/event_loop.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ranvier::offload {

struct Transfer {
  IoKind kind = IoKind::read;
  std::uint64_t address = 0;  ///< address in the striped space
  std::byte* data = nullptr;  ///< not written if kind is write
  std::size_t bytes = 0;
  runtime::Handler done;
  /// For transfers that may fail: posted instead of `done` on failure, when none of its memory is in use.
  std::function<void(const std::string& failure)> failed = nullptr;
};

class TransferEngine {
 public:
  struct File {
    int descriptor = -1;
    std::filesystem::path path;          ///< path for errors
    std::optional<BlockChecksums> sums;  ///< checksums to verify read data, if any
  };

  /// One file per directory of `stripes`. The loop and the descriptors must outlive the engine.
  TransferEngine(runtime::EventLoop& loop, std::unique_ptr<IoQueue> queue, std::vector<File> files, Stripes stripes,
                 int depth);
  /// Waits for requests in flight, since the kernel may write to their memory. Drops all other transfers.
  ~TransferEngine();

  /// Posts `done` when everything is transferred. The first failure without `failed` stops the loop with
  /// ErrorCode::io, or ::data for changed blocks, naming file, offset and cause; then no further transfer runs. Any
  /// thread.
  void start(Transfer transfer);

  /// Replaces the files while no transfer runs; they must outlive the engine or their transfers. Any thread.
  void reopen(std::vector<File> files);

  /// Test only: the next request is never executed, like on a hung disk. Any thread.
  void lose_next() noexcept;

  /// Oldest request in flight, for the user: "a read of 1.0 MiB at offset 4096 of FILE". Any thread.
  [[nodiscard]] std::string oldest() const;
  /// Requests executed so far, completely or in part. Any thread.
  [[nodiscard]] std::uint64_t done() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ranvier::offload
