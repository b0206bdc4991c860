#include "apps/options/fault.hpp"

#include "runtime/base/error.hpp"

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

namespace ranvier::apps {

namespace {

/// Fields of RANVIER_FAULT.
struct Given {
  int rank = 0;
  std::int64_t step = 0;
  std::string what;
  double times = 2;
};

[[noreturn]] void refuse(std::string_view text) {
  fail(ErrorCode::usage,
       "RANVIER_FAULT={} is invalid; use rank:step:WHAT with WHAT throw, fp16-overflow, nan, loss-spike, "
       "flip-parameters, flip-weights, flip-m, flip-v, hang, slow, slow:TIMES (1 to 1000), stream, file, load, "
       "slow-load, slow-load:TIMES or data",
       text);
}

/// Parses RANVIER_FAULT; none if it is not set.
std::optional<Given> given() {
  const char* text = std::getenv("RANVIER_FAULT");
  if (text == nullptr || *text == '\0') return std::nullopt;
  Given given;
  char what[32] = "", after = '\0';
  long long step = 0;
  int used = 0;
  if (std::sscanf(text, "%d:%lld:%31[^:]%n", &given.rank, &step, what, &used) != 3) refuse(text);
  given.step = step;
  given.what = what;
  if (text[used] == '\0') return given;
  const bool has_times = given.what == "slow" || given.what == "slow-load";
  if (!has_times || std::sscanf(text + used, ":%lf%c", &given.times, &after) != 1 || !(given.times >= 1) ||
      given.times > 1000)
    refuse(text);
  return given;
}

std::optional<ReadFault::Kind> read_kind(std::string_view what) {
  using Kind = ReadFault::Kind;
  for (const auto& [name, kind] :
       {std::pair{"load", Kind::load}, {"slow-load", Kind::slow_load}, {"data", Kind::data}})
    if (what == name) return kind;
  return std::nullopt;
}

}  // namespace

std::optional<actors::TrainerOptions::Fault> fault_from_environment() {
  const auto given = apps::given();
  if (!given || read_kind(given->what)) return std::nullopt;
  using Kind = actors::TrainerOptions::Fault::Kind;
  for (const auto& [name, kind] : {std::pair{"throw", Kind::throws},
                                   {"fp16-overflow", Kind::overflow},
                                   {"nan", Kind::nan},
                                   {"loss-spike", Kind::spike},
                                   {"flip-parameters", Kind::damage},
                                   {"flip-weights", Kind::damage},
                                   {"flip-m", Kind::damage},
                                   {"flip-v", Kind::damage},
                                   {"hang", Kind::hangs},
                                   {"slow", Kind::slow},
                                   {"stream", Kind::stream},
                                   {"file", Kind::file}}) {
    if (given->what != name) continue;
    actors::TrainerOptions::Fault fault{
        .rank = given->rank, .step = given->step, .kind = kind, .times = given->times};
    using actors::StateKind;
    for (const StateKind array : {StateKind::parameters, StateKind::weights, StateKind::m, StateKind::v}) {
      if (std::string("flip-") + actors::to_string(array) == name) fault.array = array;
    }
    return fault;
  }
  refuse(std::getenv("RANVIER_FAULT"));
}

std::optional<ReadFault> read_fault_from_environment() {
  const auto given = apps::given();
  const auto kind = given ? read_kind(given->what) : std::nullopt;
  if (!kind) return std::nullopt;
  return ReadFault{.rank = given->rank, .piece = given->step, .kind = *kind, .times = given->times};
}

}  // namespace ranvier::apps
