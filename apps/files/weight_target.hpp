// Checkpoint target that writes weights files (models/weights/). Every rank writes its segments directly to their
// offsets on a writer thread; rank 0 renames the complete files. Loop thread only, except as CheckpointTarget states.
#pragma once

#include "actors/checkpoint/checkpoint_target.hpp"
#include "actors/states/unit_states.hpp"
#include "apps/job/background_writer.hpp"
#include "models/weights/partial_weights.hpp"
#include "models/weights/safetensors.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace ranvier::apps {

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

}  // namespace ranvier::apps
