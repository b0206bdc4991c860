// JSON parsers that accept only a complete text. Callable from any thread.
#pragma once

#include <boost/json/value.hpp>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ranvier::runtime {

/// Parses one JSON value, followed only by blanks. Throws ErrorCode::data with `source`, the problem and its offset.
[[nodiscard]] boost::json::value parse_json(std::string_view text, const std::string& source);

/// Members of a JSON object in their order, also those with the same key; values as written. `text` must be an object.
[[nodiscard]] std::vector<std::pair<std::string, std::string_view>> json_members(std::string_view text);

}  // namespace ranvier::runtime
