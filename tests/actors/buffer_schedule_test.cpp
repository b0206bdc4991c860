#include "actors/schedule/buffer_schedule.hpp"

#include "runtime/base/error.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using actors::BufferSchedule;

TEST_CASE("a unit that is still in its buffer stays there, another takes the least recently used buffer") {
  BufferSchedule schedule({.of_unit = {0, 0, 0}, .places = {2}});
  CHECK(schedule.next(0, 0, true).fill);
  const auto one = schedule.next(1, 1, true);
  CHECK(one.fill);
  CHECK(!one.after);
  const auto two = schedule.next(2, 2, true);
  CHECK(two.after == 0);  // after the use of unit 0
  const auto again = schedule.next(1, 3, true);
  CHECK(!again.fill);
  CHECK(again.place == one.place);
  const auto zero = schedule.next(0, 4, true);
  CHECK(zero.place == two.place);
  CHECK(zero.after == 2);
}

TEST_CASE("units of different layouts never share a buffer, and one use may take several") {
  BufferSchedule schedule({.of_unit = {0, 1, 1}, .places = {1, 2}});
  const auto a = schedule.next(0, 0, true), b = schedule.next(1, 0, true), c = schedule.next(2, 0, true);
  CHECK(schedule.class_of_place(a.place) == 0);
  CHECK(schedule.class_of_place(b.place) == 1);
  CHECK(b.place != c.place);
  BufferSchedule narrow({.of_unit = {0, 0}, .places = {1}});
  (void)narrow.next(0, 0, true);
  CHECK_THROWS_AS((void)narrow.next(1, 0, true), Error);
}

TEST_CASE("a unit whose contents are forgotten or outdated is fetched again after its last use") {
  BufferSchedule schedule({.of_unit = {0}, .places = {1}});
  (void)schedule.next(0, 0, true);
  schedule.forget();
  CHECK(schedule.next(0, 1, true).after == 0);
  CHECK(schedule.next(0, 2, false).after == 1);
}

TEST_CASE("buffers suffice for a layer and the prefetched ones, and do not exceed the number of units or uses") {
  // Units 0 and 2 have the same layout; layers use 0 and 1, 2, 0 and 1.
  const std::vector<std::vector<std::size_t>> layouts{{8}, {3}, {8}}, layers{{0, 1}, {2}, {0, 1}};
  const auto classes = actors::buffer_classes(layouts, layers, 1, true);
  CHECK(classes.of_unit == std::vector<std::size_t>{0, 1, 0});
  CHECK(classes.first_unit == std::vector<std::size_t>{0, 1});
  CHECK(classes.places == std::vector<std::size_t>{2, 1});
  CHECK(actors::buffer_classes(layouts, layers, 0, true).places == std::vector<std::size_t>{1, 1});
  CHECK(actors::buffer_classes(layouts, layers, 9, false).places == std::vector<std::size_t>{3, 2});
}
