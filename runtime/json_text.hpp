// JSON that has to be whole. Any thread.
#pragma once

#include <boost/json/value.hpp>

#include <string>
#include <string_view>

namespace ranvier::runtime {

/// The value that `text` is, with nothing but blanks after it. Throws ErrorCode::data, naming `source`, what is
/// wrong and at which offset.
[[nodiscard]] boost::json::value parse_json(std::string_view text, const std::string& source);

}  // namespace ranvier::runtime
