#include "apps/train/options/fault.hpp"

#include "runtime/error.hpp"

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

namespace ranvier::apps {

namespace {

/// Whether what follows the kind is a number of times for "slow", and nothing for the others.
bool read_times(const char* text, std::string_view kind, double& times) {
  if (*text == '\0') return true;
  char after = '\0';
  return kind == "slow" && std::sscanf(text, ":%lf%c", &times, &after) == 1 && times >= 1 && times <= 1000;
}

}  // namespace

std::optional<actors::TrainerOptions::Fault> fault_from_environment() {
  const char* text = std::getenv("RANVIER_FAULT");
  if (text == nullptr || *text == '\0') return std::nullopt;
  actors::TrainerOptions::Fault fault;
  char kind[32] = "";
  long long step = 0;
  int used = 0;
  if (std::sscanf(text, "%d:%lld:%31[^:]%n", &fault.rank, &step, kind, &used) == 3 &&
      read_times(text + used, kind, fault.times)) {
    fault.step = step;
    using Kind = actors::TrainerOptions::Fault::Kind;
    for (const auto& [name, value] : {std::pair{"throw", Kind::throws},
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
      if (kind != std::string_view(name)) continue;
      fault.kind = value;
      using actors::UnitArray;
      for (const UnitArray array : {UnitArray::parameters, UnitArray::weights, UnitArray::m, UnitArray::v}) {
        if (std::string("flip-") + actors::to_string(array) == name) fault.array = array;
      }
      return fault;
    }
  }
  fail(ErrorCode::usage,
       "RANVIER_FAULT={}: write rank:step:WHAT, and throw, fp16-overflow, nan, loss-spike, flip-parameters, "
       "flip-weights, flip-m, flip-v, hang, slow, slow:TIMES (of 1 to 1000), stream or file for WHAT",
       text);
}

}  // namespace ranvier::apps
