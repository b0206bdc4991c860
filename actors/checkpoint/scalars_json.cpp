#include "actors/checkpoint/scalars_json.hpp"

#include "runtime/base/error.hpp"

#include <boost/json/array.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <variant>

namespace ranvier::actors {

namespace {

namespace json = boost::json;

json::value to_json(std::int64_t number) { return number; }
json::value to_json(double number) { return json::value(fmt::format("{:a}", number)); }
template <typename T>
json::value to_json(const std::vector<T>& row) {
  json::array array;
  for (const T number : row) array.push_back(to_json(number));
  return array;
}

std::optional<decltype(StateScalar::value)> read_number(const json::value& value) {
  if (const auto* whole = value.if_int64()) return *whole;
  const auto* text = value.if_string();
  if (text == nullptr || text->empty()) return std::nullopt;
  char* end = nullptr;
  const double number = std::strtod(text->c_str(), &end);
  if (end != text->c_str() + text->size()) return std::nullopt;
  return number;
}

/// Reads an array of integers or doubles. An empty one counts as integers; find_scalar() then finds no doubles, which
/// has the same meaning.
std::optional<decltype(StateScalar::value)> read_row(const json::array& row) {
  std::vector<std::int64_t> whole;
  std::vector<double> doubles;
  for (const json::value& value : row) {
    const auto number = read_number(value);
    if (!number) return std::nullopt;
    if (const auto* integer = std::get_if<std::int64_t>(&*number)) whole.push_back(*integer);
    if (const auto* real = std::get_if<double>(&*number)) doubles.push_back(*real);
  }
  if (!whole.empty() && !doubles.empty()) return std::nullopt;
  if (doubles.empty()) return whole;
  return doubles;
}

}  // namespace

json::object scalars_to_json(std::span<const StateScalar> scalars) {
  json::object object;
  for (const auto& [name, value] : scalars)
    object[name] = std::visit([](const auto& number) { return to_json(number); }, value);
  return object;
}

std::vector<StateScalar> scalars_of_json(const json::object& object, const std::string& source) {
  std::vector<StateScalar> scalars;
  for (const auto& [name, value] : object) {
    const auto number = value.is_array() ? read_row(value.get_array()) : read_number(value);
    if (!number) {
      fail(ErrorCode::data, "{}: {} is not an integer, a hexadecimal string or a list of them: {}", source,
           std::string_view(name), json::serialize(value));
    }
    scalars.push_back({name, *number});
  }
  return scalars;
}

}  // namespace ranvier::actors
