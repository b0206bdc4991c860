// Writes a rank's checkpoint file asynchronously, with several requests in flight, and with O_DIRECT if possible. One
// file at a time. Errors never end the run: each outcome reports the first failure as text. Loop thread only.
//
//   writer.open(part / "rank-0003.data", bytes, [](const std::string& failure) { … });
//   writer.write(offset, blocks, …);      // any number at a time; skipped after a failure
//   writer.close(…);                      // the file is on disk if `failure` is empty; resets the writer
#pragma once

#include "offload/file_system.hpp"
#include "runtime/files/atomic_file.hpp"
#include "runtime/loop/event_loop.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace ranvier::offload {

class CheckpointFileWriter final : public runtime::ProgressSource {
 public:
  /// Empty on success. Called on the loop, after the call returned.
  using Outcome = std::function<void(const std::string& failure)>;

  /// At most `depth` requests in flight. Loop and storage must outlive the writer.
  CheckpointFileWriter(runtime::EventLoop& loop, const FileSystem& storage, int depth);
  /// Waits for requests in flight and closes the file unfinished. Calls no further outcome.
  ~CheckpointFileWriter() override;

  /// For the last files of a run: if creating a file fails or space is missing, calls `retry` on a thread of the
  /// writer. Null (default): every failure is final.
  void insist(runtime::AtomicFile::Retry retry);

  /// Creates the file and allocates its space, so that a full disk is detected at once.
  void open(const std::filesystem::path& file, std::uint64_t bytes, Outcome done);

  /// Writes complete blocks of 4096 bytes, aligned in file and memory; they must not change until `done`. The file
  /// must be open.
  void write(std::uint64_t offset, std::span<const std::byte> blocks, Outcome done);

  /// Waits for all writes, then syncs the file. Does not wait after a failed open().
  void close(Outcome done);

  /// Description for the user: "io_uring, 16 × 1.0 MiB", and after the first open() whether O_DIRECT is used.
  [[nodiscard]] std::string description() const;

  [[nodiscard]] std::string place() const override;
  [[nodiscard]] std::uint64_t done() const noexcept override;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace ranvier::offload
