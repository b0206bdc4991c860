// Assigns units to a few device buffers, least recently used first. Ranks with the same order of accesses get the same
// plan, independent of timing (MiCS §4). Units with equal layouts share buffers. A unit that is still in a buffer stays
// there. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace ranvier::actors {

/// Classes of units that share buffers, and their numbers of buffers.
struct BufferClasses {
  std::vector<std::size_t> of_unit;     ///< class, by unit
  std::vector<std::size_t> first_unit;  ///< by class: one of its units
  std::vector<std::size_t> places;      ///< by class
};

/// Units with equal `layouts` (by unit) form a class. A class has buffers for the units of any step and the `ahead`
/// following ones; `steps`: units of each step. The maximum is the number of accesses in all steps, or with `reuse` the
/// number of units, since a unit then never occupies two buffers.
[[nodiscard]] BufferClasses buffer_classes(const std::vector<std::vector<std::size_t>>& layouts,
                                           const std::vector<std::vector<std::size_t>>& steps, int ahead,
                                           bool reuse);

class BufferSchedule {
 public:
  struct Assignment {
    std::size_t place = 0;
    bool fill = false;                   ///< the buffer must be filled; false: it contains the unit
    std::optional<std::uint64_t> after;  ///< access that must end before the buffer is filled
  };

  /// Buffers are numbered class by class.
  explicit BufferSchedule(const BufferClasses& classes);

  /// Buffer of `unit` in access `use`. Numbers of accesses never decrease; an access may need several units. `keeps`
  /// false: ignore units left by earlier accesses.
  [[nodiscard]] Assignment next(std::size_t unit, std::uint64_t use, bool keeps);

  /// Marks the contents of all buffers as outdated.
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
