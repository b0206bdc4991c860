// Fills arrays of a part's state with values that are made or read piece by piece, so that the whole is nowhere
// (ZeRO-Infinity §7.2). Loop thread only.
#pragma once

#include "actors/rank/part.hpp"
#include "actors/states/unit_states.hpp"
#include "models/unit_source.hpp"

#include <string_view>

namespace ranvier::actors {

/// Every array of that name, which are of floats; what is behind a unit's last parameter stays. Calls `done` on the
/// loop, after this returned.
void fill_state(runtime::EventLoop& loop, Part& part, std::string_view name, const UnitStates& units,
                models::UnitSource source, runtime::Handler done);

}  // namespace ranvier::actors
