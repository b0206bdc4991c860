// Saves of weights (--save, --save-every). Every rank writes its segments directly to their offsets in the files, on a
// writer thread; rank 0 renames the complete files. Loop thread only, except as CheckpointTarget states.
#pragma once

#include "actors/checkpoint/checkpointer.hpp"
#include "actors/rank/rank.hpp"
#include "actors/states/unit_states.hpp"
#include "apps/job/background_writer.hpp"
#include "apps/job/rank_run.hpp"
#include "models/weights/partial_weights.hpp"
#include "models/weights/safetensors.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ranvier::apps {

/// Approximate bytes of all files of a save.
[[nodiscard]] std::uint64_t saved_bytes(const TrainOptions& options, const Job& job);

/// Path to open first: the weights file, or the index of several.
[[nodiscard]] std::filesystem::path saved_path(const TrainOptions& options, const Job& job);

/// Folder of the weights of a step with --save-every: SAVE/weights-00000500.
[[nodiscard]] std::filesystem::path weights_folder(const std::string& save, std::int64_t step);

/// Checkpoint target that writes weights files (models/weights/).
class WeightTarget final : public actors::CheckpointTarget {
 public:
  struct Options {
    models::WeightLayout layout;
    models::CompanionFiles beside;
    runtime::AtomicFile::Retry retry;       ///< null: every write error is final
    runtime::AtomicFile::Retry last_retry;  ///< replaces `retry` for the last save of a run
    models::PartialWeights::Kind kind = models::PartialWeights::Kind::folder;
    bool adapters = false;                                 ///< write only adapters, with PEFT's names
    std::shared_ptr<const models::Safetensors> untrained;  ///< as Job::untrained
    std::function<std::filesystem::path(std::int64_t step)> place;
    std::function<std::filesystem::path(std::int64_t step)> partial;  ///< models::partial_path() of `place`
  };

  /// All arguments except `options` must outlive the target.
  WeightTarget(runtime::EventLoop& loop, runtime::Device& host, const actors::UnitStates& units, Options options);
  ~WeightTarget() override;

  void is_last() override { options_.retry = options_.last_retry; }
  void prepare(std::int64_t step) override;
  void open(std::int64_t step, runtime::Handler opened) override;
  void put(const actors::StatePiece& piece, std::size_t number, std::span<const std::byte> blocks,
           std::uint64_t hash, runtime::Handler done) override;
  void close(std::function<void(actors::CheckpointShare)> done) override;
  [[nodiscard]] std::string commit(std::int64_t step, std::span<const actors::StateScalar> scalars,
                                   std::span<const actors::CheckpointShare> shares) override;
  void discard(std::int64_t step) noexcept override;

 private:
  /// Runs `work` on this rank's writer thread, unless an earlier call has failed; then `done` on the loop.
  void attempt(std::function<void()> work, runtime::Handler done);

  const actors::UnitStates& units_;
  Options options_;
  std::optional<models::PartialWeights> partial_;  // on rank 0
  std::optional<models::WeightWriter> writer_;
  std::string failure_;     // first error of this rank
  BackgroundWriter files_;  // destroyed first: its thread uses the other members
};

/// Save at the end of a run. Waits for space on a full disk, since these weights are stored nowhere else.
class WeightSaving {
 public:
  /// `job`: models::random_job() of rank 0. `base`: as above. All references outlive it.
  WeightSaving(const RankRun& run, runtime::Device& host, actors::Rank& rank, const std::string& job,
               const std::string& base);

  /// Starts the save; all ranks call it after the last step. `done` runs on the loop when this rank has finished. An
  /// error on any rank is thrown on rank 0's loop.
  void start(runtime::Handler done);

 private:
  struct UnitRange {
    std::size_t unit = 0;   // index in the stage's units
    std::size_t begin = 0;  // element of the unit
    std::size_t count = 0;
  };

  void open();
  void next();
  void closed(const actors::CheckpointShare& share);
  void commit(const std::vector<std::string>& blocks);
  [[noreturn]] void lose(const std::string& failure) const;

  const RankRun& run_;
  actors::Rank& rank_;
  std::uint64_t bytes_;
  WeightTarget target_;
  BackgroundWriter files_;  // used on rank 0
  std::vector<UnitRange> pieces_;
  std::vector<float> values_;
  std::size_t next_ = 0;  // index in pieces_
  std::byte prepared_{};  // payload of rank 0's message that the files exist
  runtime::Handler done_;
};

/// Options of saves during a run (--save-every), for Rank::add_checkpoints().
[[nodiscard]] WeightTarget::Options weights_of_steps(const RankRun& run, const std::string& job,
                                                     const std::string& base);

}  // namespace ranvier::apps
