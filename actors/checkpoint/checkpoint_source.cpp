#include "actors/checkpoint/checkpoint_source.hpp"

#include "actors/checkpoint/scalars_json.hpp"
#include "actors/states/sharded_unit.hpp"
#include "runtime/base/error.hpp"

#include <algorithm>
#include <vector>

namespace ranvier::actors {

CheckpointSource::CheckpointSource(offload::CheckpointReader& reader, const models::Architecture& architecture,
                                   const TierOptions& tiers, Moments moments)
    : reader_(&reader),
      tiers_(tiers),
      moments_(moments),
      scalars_(
          scalars_of_json(reader.manifest().training, (reader.path() / offload::Manifest::file_name).string())) {
  const std::string& path = reader.path().string();
  std::size_t wanted = 0;
  for (const models::UnitSpec& unit : architecture.units()) {
    const std::size_t arrays = tiers.arrays_of(unit.trained && moments == Moments::saved);
    wanted += arrays;
    for (std::size_t which = 0; which < arrays; ++which) {
      const char* const array = to_string(optimizer_states[which]);
      const offload::CheckpointArray* const found = reader.find(unit.name, array);
      if (found == nullptr) {
        fail(ErrorCode::data,
             "checkpoint {} has no {} of '{}'; use the options of the run that wrote the checkpoint", path, array,
             unit.name);
      }
      const std::size_t elements = unit.elements();
      const auto stored = stored_elements(optimizer_states[which], unit, elements, tiers).before(elements);
      if (found->elements != stored && found->elements != elements) {
        fail(ErrorCode::data,
             "checkpoint {} has {} elements in {} of '{}', but the model {}; use the options of the run that wrote "
             "the checkpoint",
             path, found->elements, array, unit.name, stored);
      }
    }
  }
  const auto saved = static_cast<std::size_t>(std::ranges::count_if(
      reader.manifest().arrays, [this](const offload::CheckpointArray& each) { return !is_new(each.name); }));
  if (saved != wanted) {
    fail(ErrorCode::data,
         "checkpoint {} has {} arrays, but the model {}; use the same `train`, `freeze`, `optimizer` and "
         "`momentum` as "
         "the run that wrote the checkpoint",
         path, saved, wanted);
  }
}

std::vector<StateScalar> CheckpointSource::scalars() const {
  std::vector<StateScalar> all = scalars_;
  // New moments need the bias correction of first steps.
  if (moments_ == Moments::zero) std::erase_if(all, [](const auto& each) { return each.name == "applied_steps"; });
  return all;
}

bool CheckpointSource::is_new(std::string_view array) const noexcept {
  return moments_ == Moments::zero && array != to_string(StateKind::weights);
}

void CheckpointSource::will_read(std::span<const StateRange> ranges) {
  std::vector<offload::CheckpointRange> reads;
  for (const auto& [unit, array, range] : ranges) {
    const std::size_t end = std::min(range.begin + range.count, unit->elements());
    if (range.begin < end && !is_new(array))
      reads.push_back({unit->name, array, position(*unit, array, range.begin), position(*unit, array, end)});
  }
  reader_->will_read(reads);
}

void CheckpointSource::read(const models::UnitSpec& unit, std::string_view array, std::size_t begin,
                            std::span<float> out) {
  if (is_new(array)) {
    std::ranges::fill(out, 0.0f);
  } else {
    reader_->read(unit.name, array, position(unit, array, begin), out);
  }
}

std::size_t CheckpointSource::position(const models::UnitSpec& unit, std::string_view array,
                                       std::size_t element) const {
  const std::size_t elements = unit.elements();
  if (array != to_string(StateKind::v) || reader_->find(unit.name, array)->elements == elements) return element;
  return stored_elements(StateKind::v, unit, elements, tiers_).before(element);
}

}  // namespace ranvier::actors
