// Which of a few places on the device holds which unit, use after use, as data: decided from the order of the uses
// alone, so that all ranks that use units in the same order decide alike, whatever happens when (MiCS §4: what to
// fetch and when to release is computed once and replayed).
//
// Units of one layout share places of that size. A unit that is still in its place from an earlier use stays there;
// otherwise it takes the place that was used longest ago. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace ranvier::actors {

/// Which units share places, and how many there are.
struct BufferClasses {
  std::vector<std::size_t> of_unit;     ///< class, by unit
  std::vector<std::size_t> first_unit;  ///< by class: one of its units
  std::vector<std::size_t> places;      ///< by class
};

/// Units of equal `layouts` (by unit) are of one class. Places for what one step uses and for the `ahead` steps that
/// follow it, where `steps` has the units of each step; but no more than all steps use, or with `reuse`, where a
/// unit never takes two places, than there are units.
[[nodiscard]] BufferClasses buffer_classes(const std::vector<std::vector<std::size_t>>& layouts,
                                           const std::vector<std::vector<std::size_t>>& steps, int ahead,
                                           bool reuse);

class BufferSchedule {
 public:
  struct Assignment {
    std::size_t place = 0;
    bool fill = false;                   ///< the unit has to be brought here; false: an earlier use did that
    std::optional<std::uint64_t> after;  ///< the use that must be over before the place is filled
  };

  /// Places are numbered class by class.
  explicit BufferSchedule(const BufferClasses& classes);

  /// The place of `unit` in use number `use`; numbers never go down, and one use may take several units. `keeps`
  /// false: what an earlier use left there is of no worth.
  [[nodiscard]] Assignment next(std::size_t unit, std::uint64_t use, bool keeps);

  /// What the places hold is out of date.
  void forget();

  [[nodiscard]] std::size_t places() const noexcept { return places_.size(); }
  [[nodiscard]] std::size_t class_of_place(std::size_t place) const { return places_[place].kind; }

 private:
  struct Place {
    std::size_t kind = 0;
    std::optional<std::size_t> unit;
    std::optional<std::uint64_t> last_use;
  };

  std::vector<std::size_t> class_of_unit_;
  std::vector<Place> places_;
};

}  // namespace ranvier::actors
