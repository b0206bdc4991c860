// Reads states from a checkpoint's files to resume a run. Loop thread only.
#pragma once

#include "actors/checkpoint/state_source.hpp"
#include "models/core/architecture.hpp"
#include "offload/checkpoint/reader.hpp"

namespace ranvier::actors {

class CheckpointSource final : public StateSource {
 public:
  /// Throws ErrorCode::data unless the checkpoint has exactly the arrays of the architecture's units, with the same
  /// sizes. The reader must outlive this object.
  CheckpointSource(offload::CheckpointReader& reader, const models::Architecture& architecture);

  void will_read(std::span<const StateRange> ranges) override;
  void read(const models::UnitSpec& unit, std::string_view array, std::size_t begin, std::span<float> out) override;
  [[nodiscard]] std::vector<StateScalar> scalars() const override { return scalars_; }

 private:
  offload::CheckpointReader* reader_;
  std::vector<StateScalar> scalars_;
};

}  // namespace ranvier::actors
