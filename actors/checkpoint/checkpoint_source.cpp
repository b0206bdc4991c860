#include "actors/checkpoint/checkpoint_source.hpp"

#include "actors/checkpoint/scalars_json.hpp"
#include "actors/optimizer/state_records.hpp"
#include "runtime/error.hpp"

#include <algorithm>
#include <vector>

namespace ranvier::actors {

CheckpointSource::CheckpointSource(offload::CheckpointReader& reader, const models::Architecture& architecture)
    : reader_(&reader),
      scalars_(
          scalars_of_json(reader.manifest().training, (reader.path() / offload::Manifest::file_name).string())) {
  const std::string& path = reader.path().string();
  const std::vector<models::UnitSpec> units = architecture.units();
  for (const models::UnitSpec& unit : units) {
    for (const char* const array : state_array_names) {
      const offload::CheckpointArray* const found = reader.find(unit.name, array);
      if (found == nullptr) {
        fail(ErrorCode::data,
             "the checkpoint {} has no {} of '{}', which the model has: resume with its own options", path, array,
             unit.name);
      }
      if (found->elements != unit.elements()) {
        fail(ErrorCode::data,
             "the checkpoint {} has {} elements in {} of '{}', and the model {}: resume with its own options", path,
             found->elements, array, unit.name, unit.elements());
      }
    }
  }
  if (const std::size_t wanted = units.size() * state_array_names.size();
      reader.manifest().arrays.size() != wanted) {
    fail(ErrorCode::data, "the checkpoint {} has {} arrays, and the model {}: resume with its own options", path,
         reader.manifest().arrays.size(), wanted);
  }
}

void CheckpointSource::will_read(std::span<const StateRange> ranges) {
  std::vector<offload::CheckpointRange> reads;
  for (const auto& [unit, array, range] : ranges) {
    const std::size_t end = std::min(range.begin + range.count, unit->elements());
    if (range.begin < end) reads.push_back({unit->name, array, range.begin, end});
  }
  reader_->will_read(reads);
}

void CheckpointSource::read(const models::UnitSpec& unit, std::string_view array, std::size_t begin,
                            std::span<float> out) {
  reader_->read(unit.name, array, begin, out);
}

}  // namespace ranvier::actors
