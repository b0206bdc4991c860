// Fills the optimizer's state arrays from a source, a bounded range at a time, so that the complete model is never in
// memory (ZeRO-Infinity §7.2). Loop thread only.
#pragma once

#include "actors/optimizer/optimizer.hpp"
#include "actors/states/unit_states.hpp"
#include "models/core/unit.hpp"

#include <string_view>

namespace ranvier::actors {

/// Fills all of the optimizer's arrays called `name`; padding after a unit's last parameter stays. Values are read
/// directly into host-accessible memory if possible. Calls `done` on the loop, after this returned.
void fill_state(runtime::EventLoop& loop, Optimizer& optimizer, std::string_view name, const UnitStates& units,
                models::UnitSource source, runtime::Handler done);

}  // namespace ranvier::actors
