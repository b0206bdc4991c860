// Reads states from a checkpoint's files to resume a run. Loop thread only.
#pragma once

#include "actors/checkpoint/state_source.hpp"
#include "actors/states/tier_options.hpp"
#include "models/core/architecture.hpp"
#include "offload/checkpoint/reader.hpp"

namespace ranvier::actors {

class CheckpointSource final : public StateSource {
 public:
  /// Where moments start: at the checkpoint's values, or at zero, since another update rule wrote it.
  enum class Moments { saved, zero };

  /// Throws ErrorCode::data unless the checkpoint has exactly the arrays of the architecture's units for the optimizer
  /// of `tiers`, with the same sizes; with Moments::zero, only weights are checked. Muon's v may have all elements, as
  /// in older checkpoints. The reader must outlive this.
  CheckpointSource(offload::CheckpointReader& reader, const models::Architecture& architecture,
                   const TierOptions& tiers, Moments moments = Moments::saved);

  void will_read(std::span<const StateRange> ranges) override;
  void read(const models::UnitSpec& unit, std::string_view array, std::size_t begin, std::span<float> out) override;
  [[nodiscard]] std::vector<StateScalar> scalars() const override;

 private:
  /// Whether the array starts at zero.
  [[nodiscard]] bool is_new(std::string_view array) const noexcept;
  /// Position of an element in an array of the checkpoint.
  [[nodiscard]] std::size_t position(const models::UnitSpec& unit, std::string_view array,
                                     std::size_t element) const;

  offload::CheckpointReader* reader_;
  TierOptions tiers_;
  Moments moments_;
  std::vector<StateScalar> scalars_;
};

}  // namespace ranvier::actors
