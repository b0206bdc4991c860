#include "actors/rank/fill_state.hpp"

#include "runtime/loop/event_loop.hpp"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

namespace ranvier::actors {

namespace {

// Elements per call of the source.
constexpr std::size_t max_values = std::size_t{1} << 20, max_in_place = std::size_t{1} << 24;

struct Filling : std::enable_shared_from_this<Filling> {
  Filling(runtime::EventLoop& event_loop, Optimizer& of_optimizer, const UnitStates& of_units,
          models::UnitSource from, runtime::Handler then)
      : loop(&event_loop),
        optimizer(&of_optimizer),
        units(&of_units),
        source(std::move(from)),
        done(std::move(then)) {}

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
      const auto go_on = [self = shared_from_this()] { self->next(); };
      if (const std::span<float> memory = optimizer->state_memory(array, begin); !memory.empty()) {
        const std::size_t count = std::min({memory.size(), max_in_place, end - begin});
        source(unit, begin, memory.first(count));
        filled += count;
        return loop->post(go_on);
      }
      values.resize(std::min(max_values, end - begin));
      source(unit, begin, values);
      filled += values.size();
      return optimizer->write_state(array, begin, std::as_bytes(std::span(values)), go_on);
    }
    done();
  }

  runtime::EventLoop* loop;
  Optimizer* optimizer;
  const UnitStates* units;
  models::UnitSource source;
  runtime::Handler done;
  std::vector<StateArray> arrays;
  std::vector<float> values;
  std::size_t at = 0;      // array
  std::size_t filled = 0;  // elements of array `at`
};

}  // namespace

void fill_state(runtime::EventLoop& loop, Optimizer& optimizer, std::string_view name, const UnitStates& units,
                models::UnitSource source, runtime::Handler done) {
  const auto filling = std::make_shared<Filling>(loop, optimizer, units, std::move(source), std::move(done));
  for (const StateArray& array : optimizer.state()) {
    if (array.name == name) filling->arrays.push_back(array);
  }
  loop.post([filling] { filling->next(); });
}

}  // namespace ranvier::actors
