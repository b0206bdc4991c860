#include "actors/slot_schedule.hpp"

#include "runtime/error.hpp"

#include <doctest/doctest.h>

using namespace ranvier;
using actors::SlotSchedule;

TEST_CASE("a unit that is still in its place stays there, another takes the place used longest ago") {
  SlotSchedule schedule({0, 0, 0}, {2});
  CHECK(schedule.next(0, 0, true).fill);
  const auto one = schedule.next(1, 1, true);
  CHECK(one.fill);
  CHECK(!one.after);
  const auto two = schedule.next(2, 2, true);
  CHECK(two.after == 0);  // after the use of unit 0
  const auto again = schedule.next(1, 3, true);
  CHECK(!again.fill);
  CHECK(again.slot == one.slot);
  const auto zero = schedule.next(0, 4, true);
  CHECK(zero.slot == two.slot);
  CHECK(zero.after == 2);
}

TEST_CASE("units of different layouts never share a place, and one use may take several") {
  SlotSchedule schedule({0, 1, 1}, {1, 2});
  const auto a = schedule.next(0, 0, true), b = schedule.next(1, 0, true), c = schedule.next(2, 0, true);
  CHECK(schedule.class_of_slot(a.slot) == 0);
  CHECK(schedule.class_of_slot(b.slot) == 1);
  CHECK(b.slot != c.slot);
  SlotSchedule narrow({0, 0}, {1});
  (void)narrow.next(0, 0, true);
  CHECK_THROWS_AS((void)narrow.next(1, 0, true), Error);
}

TEST_CASE("what is forgotten, or of no worth, is brought again after its last use") {
  SlotSchedule schedule({0}, {1});
  (void)schedule.next(0, 0, true);
  schedule.forget();
  CHECK(schedule.next(0, 1, true).after == 0);
  CHECK(schedule.next(0, 2, false).after == 1);
}
