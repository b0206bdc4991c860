#include "actors/states/slot_schedule.hpp"

#include "runtime/error.hpp"

#include <algorithm>
#include <utility>

namespace ranvier::actors {

SlotClasses slot_classes(const std::vector<std::vector<std::size_t>>& layouts,
                         const std::vector<std::vector<std::size_t>>& steps, int ahead, bool reuse) {
  SlotClasses classes;
  std::vector<std::size_t> units;  // by class
  for (std::size_t u = 0; u < layouts.size(); ++u) {
    const auto known = std::find_if(classes.first_unit.begin(), classes.first_unit.end(),
                                    [&](std::size_t first) { return layouts[first] == layouts[u]; });
    const auto kind = static_cast<std::size_t>(known - classes.first_unit.begin());
    if (known == classes.first_unit.end()) {
      classes.first_unit.push_back(u);
      units.push_back(0);
    }
    classes.of_unit.push_back(kind);
    ++units[kind];
  }
  for (std::size_t kind = 0; kind < units.size(); ++kind) {
    std::size_t uses = 0, together = 0;
    for (const auto& step : steps) {
      const auto in_step = static_cast<std::size_t>(
          std::count_if(step.begin(), step.end(), [&](std::size_t unit) { return classes.of_unit[unit] == kind; }));
      uses += in_step;
      together = std::max(together, in_step);
    }
    classes.slots.push_back(std::min(reuse ? units[kind] : uses, together * static_cast<std::size_t>(1 + ahead)));
  }
  return classes;
}

SlotSchedule::SlotSchedule(const SlotClasses& classes) : class_of_unit_(classes.of_unit) {
  for (std::size_t kind = 0; kind < classes.slots.size(); ++kind) {
    slots_.insert(slots_.end(), classes.slots[kind], Slot{kind, std::nullopt, std::nullopt});
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
