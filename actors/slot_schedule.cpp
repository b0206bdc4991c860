#include "actors/slot_schedule.hpp"

#include "runtime/error.hpp"

#include <utility>

namespace ranvier::actors {

SlotSchedule::SlotSchedule(std::vector<std::size_t> class_of_unit, const std::vector<std::size_t>& slots_of_class)
    : class_of_unit_(std::move(class_of_unit)) {
  for (std::size_t kind = 0; kind < slots_of_class.size(); ++kind) {
    slots_.insert(slots_.end(), slots_of_class[kind], Slot{kind, std::nullopt, std::nullopt});
  }
}

SlotSchedule::Place SlotSchedule::next(std::size_t unit, std::uint64_t use, bool keeps) {
  const std::size_t kind = class_of_unit_.at(unit);
  std::optional<std::size_t> oldest;
  for (std::size_t s = 0; s < slots_.size(); ++s) {
    Slot& slot = slots_[s];
    if (slot.kind != kind) continue;
    if (keeps && slot.unit == unit) {
      slot.last_use = use;
      return {.slot = s, .fill = false, .after = std::nullopt};
    }
    if (!oldest ||
        (slot.last_use ? *slot.last_use + 1 : 0) < (slots_[*oldest].last_use ? *slots_[*oldest].last_use + 1 : 0)) {
      oldest = s;
    }
  }
  expect(oldest && slots_[*oldest].last_use != use, "a use of unit {} finds no place of class {}", unit, kind);
  Slot& slot = slots_[*oldest];
  slot.unit = unit;
  return {.slot = *oldest, .fill = true, .after = std::exchange(slot.last_use, use)};
}

void SlotSchedule::forget() {
  for (Slot& slot : slots_) slot.unit.reset();
}

}  // namespace ranvier::actors
