// Weights files (models/weights/) as what checkpoints of a training become: every rank writes its own pieces straight
// to their places in them, on a thread of its own, and rank 0 gives them their names. Loop thread only, but for what
// CheckpointTarget says.
#pragma once

#include "actors/checkpoint/checkpoint_target.hpp"
#include "actors/states/unit_states.hpp"
#include "apps/train/background_writer.hpp"
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
    models::FilesBeside beside;
    runtime::AtomicFile::Retry retry;       ///< null: every refusal is final
    runtime::AtomicFile::Retry last_retry;  ///< instead, for the last weights of a run
    models::PartialWeights::Kind kind = models::PartialWeights::Kind::folder;
    bool adapters = false;                                 ///< only those, in PEFT's names
    std::shared_ptr<const models::Safetensors> untrained;  ///< Job::untrained
    std::function<std::filesystem::path(std::int64_t step)> place;
    std::function<std::filesystem::path(std::int64_t step)> partial;  ///< models::partial_path() of it
  };

  /// All but `options` outlive it.
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
  /// On this rank's thread, unless something has failed before.
  void attempt(std::function<void()> work, runtime::Handler done);

  const actors::UnitStates& units_;
  Options options_;
  std::optional<models::PartialWeights> partial_;  // on rank 0
  std::optional<models::WeightWriter> writer_;
  std::string failure_;     // of this rank, the first
  BackgroundWriter files_;  // its work ends before what it writes with
};

}  // namespace ranvier::apps
