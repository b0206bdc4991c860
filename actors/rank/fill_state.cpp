#include "actors/rank/fill_state.hpp"

#include "runtime/event_loop.hpp"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

namespace ranvier::actors {

namespace {

constexpr std::size_t most_values = std::size_t{1} << 20;  // at a time

struct Filling : std::enable_shared_from_this<Filling> {
  Filling(Part& of_part, const UnitStates& of_units, models::UnitSource from, runtime::Handler then)
      : part(&of_part), units(&of_units), source(std::move(from)), done(std::move(then)) {}

  void next() {
    while (at < arrays.size()) {
      const StateArray& array = arrays[at];
      const models::UnitSpec& unit = *units->all()[array.unit].spec;
      const std::size_t end = std::min(array.range.begin + array.range.count, unit.elements());
      const std::size_t begin = array.range.begin + filled;
      if (begin >= end) {
        ++at;
        filled = 0;
        continue;
      }
      values.resize(std::min(most_values, end - begin));
      source(unit, begin, values);
      filled += values.size();
      return part->write_state(array, begin, std::as_bytes(std::span(values)),
                               [self = shared_from_this()] { self->next(); });
    }
    done();
  }

  Part* part;
  const UnitStates* units;
  models::UnitSource source;
  runtime::Handler done;
  std::vector<StateArray> arrays;
  std::vector<float> values;
  std::size_t at = 0;      // array
  std::size_t filled = 0;  // of it
};

}  // namespace

void fill_state(runtime::EventLoop& loop, Part& part, std::string_view name, const UnitStates& units,
                models::UnitSource source, runtime::Handler done) {
  const auto filling = std::make_shared<Filling>(part, units, std::move(source), std::move(done));
  for (const StateArray& array : part.state()) {
    if (array.name == name) filling->arrays.push_back(array);
  }
  loop.post([filling] { filling->next(); });
}

}  // namespace ranvier::actors
