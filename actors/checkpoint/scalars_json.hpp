// Converts scalars of training state to JSON without rounding: integers as numbers, floating point as hexadecimal
// strings, lists as arrays. Any thread.
#pragma once

#include "actors/base/actor.hpp"

#include <boost/json/object.hpp>

#include <span>
#include <string>
#include <vector>

namespace ranvier::actors {

[[nodiscard]] boost::json::object scalars_to_json(std::span<const StateScalar> scalars);

/// Returns the scalars of `object`. Throws ErrorCode::data that names `source` for other values.
[[nodiscard]] std::vector<StateScalar> scalars_of_json(const boost::json::object& object,
                                                       const std::string& source);

}  // namespace ranvier::actors
