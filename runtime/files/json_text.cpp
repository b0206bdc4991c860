#include "runtime/files/json_text.hpp"

#include "runtime/base/error.hpp"

#include <boost/json/parser.hpp>

namespace ranvier::runtime {
namespace {

constexpr const char* blanks = " \t\r\n";

/// Takes the value at the start of the text and the blanks around it from the text. Returns the value as written.
std::string_view take_value(std::string_view& text, boost::json::parser& parser) {
  const std::string_view taken = text.substr(0, parser.write_some(text.data(), text.size()));
  text.remove_prefix(taken.size());
  const std::size_t begin = taken.find_first_not_of(blanks);
  return taken.substr(begin, taken.find_last_not_of(blanks) + 1 - begin);
}

}  // namespace

boost::json::value parse_json(std::string_view text, const std::string& source) {
  boost::json::error_code error;
  boost::json::parser parser;
  const std::size_t parsed = parser.write_some(text.data(), text.size(), error);
  if (!error && text.find_first_not_of(blanks, parsed) != std::string_view::npos)
    error = boost::json::error::extra_data;
  if (error) fail(ErrorCode::data, "{}: not JSON: {} at offset {}", source, error.message(), parsed);
  return parser.release();
}

std::vector<std::pair<std::string, std::string_view>> json_members(std::string_view text) {
  std::vector<std::pair<std::string, std::string_view>> members;
  text.remove_prefix(text.find_first_of("\"}", text.find('{')));
  while (!text.starts_with('}')) {
    boost::json::parser key, value;
    take_value(text, key);
    text.remove_prefix(1);  // ':'
    members.emplace_back(key.release().as_string(), take_value(text, value));
    if (text.starts_with(',')) text.remove_prefix(1);
  }
  return members;
}

}  // namespace ranvier::runtime
