#include "actors/schedule/buffer_schedule.hpp"

#include "runtime/base/error.hpp"

#include <algorithm>
#include <utility>

namespace ranvier::actors {

BufferClasses buffer_classes(const std::vector<std::vector<std::size_t>>& layouts,
                             const std::vector<std::vector<std::size_t>>& steps, int ahead, bool reuse) {
  BufferClasses classes;
  std::vector<std::size_t> units;  // by class
  for (std::size_t u = 0; u < layouts.size(); ++u) {
    const auto known =
        std::ranges::find_if(classes.first_unit, [&](std::size_t first) { return layouts[first] == layouts[u]; });
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
          std::ranges::count_if(step, [&](std::size_t unit) { return classes.of_unit[unit] == kind; }));
      uses += in_step;
      together = std::max(together, in_step);
    }
    classes.places.push_back(std::min(reuse ? units[kind] : uses, together * static_cast<std::size_t>(1 + ahead)));
  }
  return classes;
}

BufferSchedule::BufferSchedule(const BufferClasses& classes) : class_of_unit_(classes.of_unit) {
  for (std::size_t kind = 0; kind < classes.places.size(); ++kind) {
    places_.insert(places_.end(), classes.places[kind], Place{kind, std::nullopt, std::nullopt});
  }
}

BufferSchedule::Assignment BufferSchedule::next(std::size_t unit, std::uint64_t use, bool keeps) {
  const std::size_t kind = class_of_unit_.at(unit);
  std::optional<std::size_t> oldest;
  for (std::size_t p = 0; p < places_.size(); ++p) {
    Place& place = places_[p];
    if (place.kind != kind) continue;
    if (keeps && place.unit == unit) {
      place.last_use = use;
      return {.place = p, .fill = false, .after = std::nullopt};
    }
    if (!oldest || (place.last_use ? *place.last_use + 1 : 0) <
                       (places_[*oldest].last_use ? *places_[*oldest].last_use + 1 : 0)) {
      oldest = p;
    }
  }
  expect(oldest && places_[*oldest].last_use != use, "a use of unit {} finds no place of class {}", unit, kind);
  Place& place = places_[*oldest];
  place.unit = unit;
  return {.place = *oldest, .fill = true, .after = std::exchange(place.last_use, use)};
}

void BufferSchedule::forget() {
  for (Place& place : places_) place.unit.reset();
}

}  // namespace ranvier::actors
