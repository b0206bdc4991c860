// JSON parser that accepts only a complete text. Callable from any thread.
#pragma once

#include <boost/json/value.hpp>

#include <string>
#include <string_view>

namespace ranvier::runtime {

/// Parses one JSON value, followed only by blanks. Throws ErrorCode::data with `source`, the problem and its offset.
[[nodiscard]] boost::json::value parse_json(std::string_view text, const std::string& source);

}  // namespace ranvier::runtime
