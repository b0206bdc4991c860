#include "models/weights/config_file.hpp"

#include "runtime/base/error.hpp"
#include "runtime/files/json_text.hpp"

#include <boost/json/serialize.hpp>
#include <boost/json/string.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace ranvier::models {
namespace {

namespace json = boost::json;

constexpr std::size_t longest_config = 1 << 20;

std::string shown(const json::value* value) { return value == nullptr ? "missing" : json::serialize(*value); }

}  // namespace

ConfigFile::ConfigFile(std::string_view text, std::filesystem::path path) : path_(std::move(path)) {
  if (text.size() > longest_config)
    fail(ErrorCode::data, "{}: the file is too large for a model configuration: {} bytes", path_.string(),
         text.size());
  const json::value value = runtime::parse_json(text, path_.string());
  if (!value.is_object()) fail(ErrorCode::data, "{}: not a JSON object", path_.string());
  object_ = value.as_object();
}

const json::value* ConfigFile::find(std::string_view key) const {
  const json::value* const value = object_.if_contains(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

bool ConfigFile::has_objects() const {
  return std::ranges::any_of(object_, [](const auto& member) { return member.value().is_object(); });
}

int ConfigFile::size(std::string_view key, std::optional<int> otherwise, int least) const {
  const json::value* const value = find(key);
  if (value == nullptr && otherwise) return *otherwise;
  if (value == nullptr) fail(ErrorCode::data, "{}: '{}' is missing", path_.string(), key);
  if (!value->is_int64() || value->as_int64() < least || value->as_int64() > std::numeric_limits<int>::max())
    refuse_value(key, fmt::format("an integer of at least {}", least));
  return static_cast<int>(value->as_int64());
}

double ConfigFile::number(std::string_view key, std::optional<double> otherwise) const {
  const json::value* const value = find(key);
  if (value == nullptr && otherwise) return *otherwise;
  const double number = value != nullptr && value->is_number() ? value->to_number<double>() : 0.0;
  if (!(number > 0 && number <= static_cast<double>(std::numeric_limits<float>::max())))
    refuse_value(key, "a number above 0");
  return number;
}

float ConfigFile::rate(std::string_view key, float otherwise) const {
  const json::value* const value = find(key);
  if (value == nullptr) return otherwise;
  const double given = value->is_number() ? value->to_number<double>() : -1.0;
  const float rate = given >= 0 && given <= 1 ? static_cast<float>(given) : -1.0f;
  if (!(rate >= 0 && rate < 1)) refuse_value(key, "a number from 0 to 1 (excluded)");
  return rate;
}

bool ConfigFile::flag(std::string_view key, bool otherwise) const {
  const json::value* const value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_bool()) refuse_value(key, "true or false");
  return value->as_bool();
}

std::string ConfigFile::word(std::string_view key) const {
  const json::value* const value = find(key);
  if (value == nullptr) return {};
  if (!value->is_string()) refuse_value(key, "a string");
  return std::string(value->as_string());
}

std::optional<ConfigFile> ConfigFile::object(std::string_view key) const {
  const json::value* const value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_object()) refuse_value(key, "an object");
  return ConfigFile(value->as_object(), path_);
}

void ConfigFile::require(std::string_view key, const std::function<bool(const json::value&)>& accepts,
                         const std::string& computed) const {
  const json::value* const value = find(key);
  if (value != nullptr && !accepts(*value)) refuse(key, computed);
}

void ConfigFile::require(std::string_view key, const json::value& value, const std::string& computed) const {
  require(key, [&](const json::value& found) { return found == value; }, computed);
}

void ConfigFile::require_unquantized() const {
  for (const char* const key : {"quantization_config", "compression_config"}) {
    const json::value* const value = find(key);
    if (value == nullptr) continue;
    const auto* const object = value->if_object();
    const json::value* const method = object == nullptr ? nullptr : object->if_contains("quant_method");
    fail(ErrorCode::data,
         "{}: the weights are quantized: '{}' has quant_method {}; use the original weights, or save the result of "
         "transformers' model.dequantize()",
         path_.string(), key, shown(method));
  }
}

void ConfigFile::refuse_value(std::string_view key, const std::string& allowed) const {
  fail(ErrorCode::data, "{}: '{}' is {}; it must be {}", path_.string(), key, shown(find(key)), allowed);
}

void ConfigFile::refuse(std::string_view key, const std::string& computed) const {
  fail(ErrorCode::data, "{}: unsupported '{}': {} (supported: {}); use other weights", path_.string(), key,
       shown(find(key)), computed);
}

JsonMembers::JsonMembers(std::string_view text) {
  for (const auto& [key, value] : runtime::json_members(text)) set(key, std::string(value));
}

void JsonMembers::set(const std::string& key, std::string value) {
  const auto [place, is_new] = places_.emplace(key, members_.size());
  if (is_new) {
    members_.emplace_back(key, std::move(value));
  } else {
    members_[place->second].second = std::move(value);
  }
}

void JsonMembers::set_fp32() {
  const bool newer = has("dtype");
  if (newer) set("dtype", "\"float32\"");
  if (!newer || has("torch_dtype")) set("torch_dtype", "\"float32\"");
}

std::string JsonMembers::json() const {
  std::string all;
  for (const auto& [key, value] : members_)
    all += fmt::format("{}\n  {}: {}", all.empty() ? "{" : ",", json::serialize(json::string(key)), value);
  return all + "\n}\n";
}

bool is_text(const json::value& value, std::initializer_list<std::string_view> texts) {
  return value.is_string() && std::any_of(texts.begin(), texts.end(), [&](std::string_view text) {
           return std::string_view(value.as_string()) == text;
         });
}

}  // namespace ranvier::models
