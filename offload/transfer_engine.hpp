// Carries out transfers of a striped address space over files: cuts them into requests, keeps up to `depth` of them
// in flight on an IoQueue, checks each completion's count, goes on after a short one, asks again after EINTR and
// EAGAIN. Transfers are begun in the order of start(); a thread of its own does all of it and posts what is done.
#pragma once

#include "offload/block_checksums.hpp"
#include "offload/io_queue.hpp"
#include "offload/stripes.hpp"
#include "runtime/event_loop.hpp"

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
  std::uint64_t address = 0;  ///< in the striped space
  std::byte* data = nullptr;  ///< only read when kind is write
  std::size_t bytes = 0;
  runtime::Handler done;
  /// Who can do without the transfer: what is posted, instead of `done`, when it fails, once none of its memory is used
  /// any more.
  std::function<void(const std::string& failure)> failed = nullptr;
};

class TransferEngine {
 public:
  struct File {
    int descriptor = -1;
    std::filesystem::path path;          ///< what an error names
    std::optional<BlockChecksums> sums;  ///< what is read back is checked with, if anything
  };

  /// One file for each directory of `stripes`. The loop and the descriptors outlive the engine.
  TransferEngine(runtime::EventLoop& loop, std::unique_ptr<IoQueue> queue, std::vector<File> files, Stripes stripes,
                 int depth);
  /// Waits for requests in flight: the kernel may write to their memory until then. Drops all other transfers.
  ~TransferEngine();

  /// Posts `done` when all of it has been transferred. The first failure of a transfer without `failed` stops the loop
  /// with ErrorCode::io, or ::data for blocks that are not what was written, which names file, offset and cause; from
  /// then on nothing is transferred. Any thread.
  void start(Transfer transfer);

  /// Other files from now on, when no transfer is under way; they outlive the engine, or their transfers. Any thread.
  void reopen(std::vector<File> files);

  /// To see what becomes of a disk that does not answer: the next request is never carried out. Any thread.
  void lose_next() noexcept;

  /// The oldest request in flight, for people: "a read of 1.0 MiB at offset 4096 of FILE". Any thread.
  [[nodiscard]] std::string oldest() const;
  /// Requests that have been carried out, in part or whole, so far. Any thread.
  [[nodiscard]] std::uint64_t done() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ranvier::offload
