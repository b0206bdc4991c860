#include "apps/train/options/fault.hpp"

#include "runtime/error.hpp"

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

namespace ranvier::apps {

std::optional<actors::TrainerOptions::Fault> fault_from_environment() {
  const char* text = std::getenv("RANVIER_FAULT");
  if (text == nullptr || *text == '\0') return std::nullopt;
  actors::TrainerOptions::Fault fault;
  char kind[32] = "";
  long long step = 0;
  if (std::sscanf(text, "%d:%lld:%31s", &fault.rank, &step, kind) == 3) {
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
       "flip-weights, flip-m, flip-v, hang, stream or file "
       "for WHAT",
       text);
}

}  // namespace ranvier::apps
