// Fills arrays of a part's state with values that are made or read piece by piece, so that the whole is nowhere
// (ZeRO-Infinity §7.2). Loop thread only.
#pragma once

#include "actors/optimizer/optimizer.hpp"
#include "actors/states/unit_states.hpp"
#include "models/unit_source.hpp"

#include <string_view>

namespace ranvier::actors {

/// Every array of the optimizer's that has that name; what is behind a unit's last parameter stays. Values go straight
/// to where they live, as far as the host reaches that. Calls `done` on the loop, after this returned.
void fill_state(runtime::EventLoop& loop, Optimizer& optimizer, std::string_view name, const UnitStates& units,
                models::UnitSource source, runtime::Handler done);

}  // namespace ranvier::actors
