// Writes a rank's file of a checkpoint beside the loop, past the system's cache where the file system allows, with
// several requests in flight: one file after the other, made whole or given up.
//
//   writer.open(part / "rank-0003.data", bytes, [](const std::string& failure) { … });
//   writer.write(offset, blocks, …);      // any number at a time
//   writer.close(…);                      // it is on disk, if `failure` is empty
//
// A checkpoint that fails is not worth a training: what goes wrong is handed to the outcome as text, with the file and
// the cause, and neither thrown nor given to the loop. After a failure the rest of the file is not written, every
// outcome says what was first, and close() makes the writer ready for the next file. Loop thread only.
#pragma once

#include "offload/checkpoint/storage.hpp"
#include "runtime/atomic_file.hpp"
#include "runtime/event_loop.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace ranvier::offload {

/// Timeouts that a piece of work on a checkpoint may take without a sign of progress. Bringing a large file to a slow
/// disk gives none, and a run can do without a checkpoint for long.
inline constexpr int checkpoint_patience = 30;

class CheckpointFileWriter final : public runtime::ProgressSource {
 public:
  /// Empty where all went well. Called on the loop, after the call that it belongs to returned.
  using Outcome = std::function<void(const std::string& failure)>;

  /// `depth` requests in flight at most. Both outlive the writer.
  CheckpointFileWriter(runtime::EventLoop& loop, const CheckpointStorage& storage, int depth);
  /// Waits for what is in flight and closes the file as it is. No outcome is called any more.
  ~CheckpointFileWriter() override;

  /// For files that nothing else comes after: where the system refuses to make those to come, or has no room for them,
  /// it is asked whether to try again, on a thread of the writer's. Null, as at first: every refusal is final.
  void insist(runtime::AtomicFile::Retry retry);

  /// Makes the file and takes all of its space, so that a full disk is known at once.
  void open(const std::filesystem::path& file, std::uint64_t bytes, Outcome done);

  /// Writes whole blocks of 4096, which begin on one in the file and in memory, and stay as they are until `done`. The
  /// file is open.
  void write(std::uint64_t offset, std::span<const std::byte> blocks, Outcome done);

  /// Waits for all writes, then brings the file to the disk. Nothing to wait for after open() failed.
  void close(Outcome done);

  /// For people: "io_uring, 16 × 1.0 MiB"; and, once a file was opened, whether past the system's cache.
  [[nodiscard]] std::string description() const;

  [[nodiscard]] std::string place() const override;
  [[nodiscard]] std::uint64_t done() const noexcept override;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace ranvier::offload
