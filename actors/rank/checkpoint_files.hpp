// Target: resumable checkpoints as files (offload/checkpoint/folder.hpp). Each rank writes its segments to its own
// file, with the same layout in every step; rank 0 writes the manifest. Threads: see CheckpointTarget.
#pragma once

#include "actors/checkpoint/checkpoint_target.hpp"
#include "actors/rank/rank_plan.hpp"
#include "offload/checkpoint/file_writer.hpp"
#include "offload/checkpoint/folder.hpp"

#include <boost/json/object.hpp>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace ranvier::actors {

class CheckpointFiles final : public CheckpointTarget {
 public:
  struct Options {
    std::string job;                 ///< id of the run, identical on all ranks
    int keep = 3;                    ///< see CheckpointFolder::prune()
    std::int64_t archive_every = 0;  ///< see CheckpointFolder::prune()
    int depth = 8;                   ///< maximum number of requests in flight
    /// Returns information about the run for the manifest. Called on rank 0, on the loop, when a checkpoint starts.
    std::function<boost::json::object()> about;
  };

  /// `folder` is the same on all ranks, and locked on rank 0. All arguments except `options` must outlive this object.
  CheckpointFiles(runtime::EventLoop& loop, const RankPlan& plan, offload::CheckpointFolder& folder,
                  Options options, const offload::FileSystem& storage = offload::system_storage());

  /// Sets a function that decides whether to retry the last checkpoint of a run after a disk error. It may block; it is
  /// called on file threads. Call this before training.
  void insist_at_end(runtime::AtomicFile::Retry retry) { retry_ = std::move(retry); }

  /// Bytes per checkpoint that this rank writes. If the disk is full, the oldest checkpoints are removed, never the
  /// newest.
  [[nodiscard]] std::uint64_t file_bytes() const noexcept { return bytes_; }
  /// Minimum of bytes per checkpoint over all ranks together.
  [[nodiscard]] std::uint64_t whole_bytes() const noexcept { return whole_bytes_; }

  void is_last() override;
  void begin(std::int64_t step) override;
  void prepare(std::int64_t step) override;
  void open(std::int64_t step, runtime::Handler opened) override;
  void put(const StatePiece& piece, std::size_t number, std::span<const std::byte> blocks, std::uint64_t hash,
           runtime::Handler done) override;
  void close(std::function<void(CheckpointShare)> done) override;
  [[nodiscard]] std::string commit(std::int64_t step, std::span<const StateScalar> scalars,
                                   std::span<const CheckpointShare> shares) override;
  void discard(std::int64_t step) noexcept override;

 private:
  /// Returns a callback for the writer that records a failure, then runs `next`.
  [[nodiscard]] offload::CheckpointFileWriter::Outcome then(runtime::Handler next);

  runtime::EventLoop* loop_;
  offload::CheckpointFolder* folder_;
  Options options_;
  offload::CheckpointFileWriter writer_;
  runtime::AtomicFile::Retry retry_;
  std::size_t rank_;
  std::vector<offload::CheckpointArray> arrays_;    // arrays of all ranks for the manifest
  std::vector<offload::CheckpointSegment> pieces_;  // manifest entries; rank 0 sets `file`; empty: no file
  std::uint64_t bytes_ = 0;
  std::uint64_t whole_bytes_ = 0;  // sum over all ranks
  std::size_t removed_ = 0;        // older checkpoints removed to free space
  std::string failure_;            // first failure of this checkpoint
  boost::json::object about_;
};

}  // namespace ranvier::actors
