// A JSON value that is read key by key, so that errors name the key. Any thread.
#pragma once

#include "runtime/base/error.hpp"

#include <boost/json/value.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ranvier::models {

/// Both tokens of a merge in tokenizer.json: "a b", or ["a", "b"] in newer files. Empty: it has another form.
[[nodiscard]] inline std::pair<std::string_view, std::string_view> merged_tokens(const boost::json::value& merge) {
  if (const auto* const string = merge.if_string()) {
    const std::string_view text = *string;
    const std::size_t blank = std::min(text.find(' '), text.size());
    return {text.substr(0, blank), text.substr(std::min(blank + 1, text.size()))};
  }
  const auto* const both = merge.if_array();
  if (both == nullptr || both->size() != 2 || !(*both)[0].is_string() || !(*both)[1].is_string()) return {};
  return {(*both)[0].get_string(), (*both)[1].get_string()};
}

/// A value with its key path. Members throw ErrorCode::data, naming file and key, if the value has another type. File
/// and value must outlive it.
class JsonNode {
 public:
  JsonNode(const std::string& file, std::string key, const boost::json::value* value)
      : file_(&file), key_(std::move(key)), value_(value) {}

  [[noreturn]] void refuse(std::string_view what) const { fail(ErrorCode::data, "{} {}", where(), what); }
  /// Throws for an unsupported type.
  [[noreturn]] void unknown_type(std::string_view remedy) const {
    refuse(fmt::format("has unsupported type '{}'; {}", type(), remedy));
  }
  [[nodiscard]] bool there() const { return value_ != nullptr && !value_->is_null(); }
  [[nodiscard]] std::string where() const {
    return key_.empty() ? fmt::format("{}: the content", *file_) : fmt::format("{}: '{}'", *file_, key_);
  }

  [[nodiscard]] JsonNode operator[](std::string_view name) const {
    const boost::json::object* object = value_ == nullptr ? nullptr : value_->if_object();
    return {*file_, key_.empty() ? std::string(name) : fmt::format("{}.{}", key_, name),
            object == nullptr ? nullptr : object->if_contains(name)};
  }
  [[nodiscard]] const boost::json::object& object() const {
    if (!there() || !value_->is_object()) refuse("is not a JSON object");
    return value_->get_object();
  }
  [[nodiscard]] std::vector<JsonNode> list() const {
    if (!there() || !value_->is_array()) refuse("is not a JSON array");
    std::vector<JsonNode> nodes;
    nodes.reserve(value_->get_array().size());
    for (const boost::json::value& one : value_->get_array())
      nodes.emplace_back(*file_, fmt::format("{}[{}]", key_, nodes.size()), &one);
    return nodes;
  }
  [[nodiscard]] const boost::json::value* value() const { return value_; }
  [[nodiscard]] std::string text() const {
    if (!there() || !value_->is_string()) refuse("is not a string");
    return std::string(value_->get_string());
  }
  [[nodiscard]] std::string text_or(std::string otherwise) const { return there() ? text() : otherwise; }
  [[nodiscard]] bool flag(bool otherwise) const {
    if (!there()) return otherwise;
    if (!value_->is_bool()) refuse("is neither true nor false");
    return value_->get_bool();
  }
  [[nodiscard]] std::int64_t whole(std::int64_t least, std::int64_t most) const {
    if (!there() || !value_->is_int64() || value_->get_int64() < least || value_->get_int64() > most)
      refuse(fmt::format("is not an integer from {} to {}", least, most));
    return value_->get_int64();
  }
  [[nodiscard]] std::string type() const { return (*this)["type"].text(); }

 private:
  const std::string* file_;
  std::string key_;
  const boost::json::value* value_;
};

}  // namespace ranvier::models
