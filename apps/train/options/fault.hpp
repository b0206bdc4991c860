// Makes a run fail on purpose, to see how it does.
#pragma once

#include "actors/rank/trainer_options.hpp"

#include <optional>

namespace ranvier::apps {

/// As RANVIER_FAULT=rank:step:throw|fp16-overflow|nan|loss-spike|flip-ARRAY|hang|slow[:TIMES]|stream|file asks for; see
/// apps/README.md. None: it is not set. Throws ErrorCode::usage for what it does not know.
[[nodiscard]] std::optional<actors::TrainerOptions::Fault> fault_from_environment();

}  // namespace ranvier::apps
