#include "runtime/files/json_text.hpp"

#include "runtime/base/error.hpp"

#include <boost/json/parser.hpp>

namespace ranvier::runtime {

boost::json::value parse_json(std::string_view text, const std::string& source) {
  boost::json::error_code error;
  boost::json::parser parser;
  const std::size_t parsed = parser.write_some(text.data(), text.size(), error);
  if (!error && text.find_first_not_of(" \t\r\n", parsed) != std::string_view::npos)
    error = boost::json::error::extra_data;
  if (error) fail(ErrorCode::data, "{}: not JSON: {} at offset {}", source, error.message(), parsed);
  return parser.release();
}

}  // namespace ranvier::runtime
