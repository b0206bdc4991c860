// The numbers of training state as JSON has them, exactly: whole ones as numbers, others as hexadecimal text, which
// rounds nothing; rows of either as arrays. Any thread.
#pragma once

#include "actors/rank/actor.hpp"

#include <boost/json/object.hpp>

#include <span>
#include <string>
#include <vector>

namespace ranvier::actors {

[[nodiscard]] boost::json::object scalars_to_json(std::span<const StateScalar> scalars);

/// Names are those of `object`, which stays as long. Throws ErrorCode::data, naming `source`, for what is neither.
[[nodiscard]] std::vector<StateScalar> scalars_of_json(const boost::json::object& object,
                                                       const std::string& source);

}  // namespace ranvier::actors
