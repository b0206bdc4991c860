// Checkpoints to go on from, as files (offload/checkpoint/folder.hpp): each rank writes its pieces to a file of its
// own, whose layout is the same for every step, and rank 0 the manifest. Threads as CheckpointTarget says.
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
    std::string job;                 ///< the same on all ranks, another one for every run
    int keep = 3;                    ///< CheckpointFolder::prune()
    std::int64_t archive_every = 0;  ///< likewise
    int depth = 8;                   ///< requests in flight
    /// Of the run, for people and tools. On rank 0, on the loop, as a checkpoint begins.
    std::function<boost::json::object()> about;
  };

  /// `folder` is the same on all ranks, and locked on rank 0. All but `options` outlive it.
  CheckpointFiles(runtime::EventLoop& loop, const RankPlan& plan, offload::CheckpointFolder& folder,
                  Options options, const offload::CheckpointStorage& storage = offload::system_storage());

  /// Asked, on threads of the files', where the disk refuses the last checkpoint: whether to try again, after whatever
  /// wait. Before the training; otherwise that one fails as others do.
  void insist_at_end(runtime::AtomicFile::Retry retry) { retry_ = std::move(retry); }

  /// What this rank writes of each checkpoint. Where the disk has no room for one more than are kept, the oldest makes
  /// room; the newest always stays.
  [[nodiscard]] std::uint64_t file_bytes() const noexcept { return bytes_; }
  /// What all ranks do, at least.
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
  void make_room(std::int64_t step);
  void note(const std::string& failure) {
    if (failure_.empty()) failure_ = failure;
  }
  /// What the writer calls: notes a failure, then runs `next`.
  [[nodiscard]] offload::CheckpointFileWriter::Outcome then(runtime::Handler next);

  runtime::EventLoop* loop_;
  const models::Architecture* architecture_;
  offload::CheckpointFolder* folder_;
  Options options_;
  offload::CheckpointFileWriter writer_;
  runtime::AtomicFile::Retry retry_;
  std::size_t rank_;
  std::vector<offload::CheckpointSegment>
      pieces_;  // as the manifest has them, but for `file`, which is rank 0's to say
  std::uint64_t bytes_ = 0;
  std::uint64_t whole_bytes_ = 0;  // of all ranks
  std::size_t removed_ = 0;        // older ones, to make room for this
  bool opened_ = false;            // there is a file to close
  std::string failure_;            // of this checkpoint, the first
  boost::json::object about_;
};

}  // namespace ranvier::actors
