// The config.json of a model in a Hugging Face folder. Reads values with errors that name file and key, and writes
// the file again with all other keys unchanged. Any thread.
#pragma once

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>

#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ranvier::models {

class ConfigFile {
 public:
  /// `text` is the content of the file at `path`. Throws ErrorCode::data, naming it, if it is not a JSON object or
  /// too large.
  ConfigFile(std::string_view text, std::filesystem::path path);

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

  /// Whether the key exists, even with the value null.
  [[nodiscard]] bool has(std::string_view key) const { return object_.contains(key); }
  /// Null if the key is missing or its value is null.
  [[nodiscard]] const boost::json::value* find(std::string_view key) const;

  // Each throws ErrorCode::data, naming file, key and value, for a value of another type.

  /// An integer of at least `least`; `otherwise` if the key is missing or null, and an error without `otherwise`.
  [[nodiscard]] int size(std::string_view key, std::optional<int> otherwise = {}, int least = 1) const;
  /// A number above 0; `otherwise` as for size().
  [[nodiscard]] double number(std::string_view key, std::optional<double> otherwise = {}) const;
  /// A number from 0 to 1 (excluded); `otherwise` as for size().
  [[nodiscard]] float rate(std::string_view key, float otherwise) const;
  [[nodiscard]] bool flag(std::string_view key, bool otherwise) const;
  /// "" if the key is missing or null.
  [[nodiscard]] std::string word(std::string_view key) const;
  /// Whether any value is an object.
  [[nodiscard]] bool has_objects() const;
  /// The object at this key as a separate file; none if it is missing or null.
  [[nodiscard]] std::optional<ConfigFile> object(std::string_view key) const;

  /// Throws unless the key is missing or null, or `accepts` its value; `computed` describes the supported values.
  void require(std::string_view key, const std::function<bool(const boost::json::value&)>& accepts,
               const std::string& computed) const;
  void require(std::string_view key, const boost::json::value& value, const std::string& computed) const;

  /// Throws for quantized weights, whose tensors are not the model's.
  void require_unquantized() const;

  /// Throws that the value is not supported.
  [[noreturn]] void refuse(std::string_view key, const std::string& computed) const;

 private:
  [[noreturn]] void refuse_value(std::string_view key, const std::string& allowed) const;

  ConfigFile(boost::json::object object, std::filesystem::path path)
      : path_(std::move(path)), object_(std::move(object)) {}

  std::filesystem::path path_;
  boost::json::object object_;
};

/// Keys and values of a JSON object in their order; values as written.
class JsonMembers {
 public:
  /// `text` must be a JSON object.
  explicit JsonMembers(std::string_view text);

  [[nodiscard]] bool has(const std::string& key) const { return places_.contains(key); }
  /// Replaces the value, or appends the key.
  void set(const std::string& key, std::string value);
  /// Sets fp32, the type of trained tensors, as the dtype in which transformers loads all tensors.
  void set_fp32();
  [[nodiscard]] std::string json() const;

 private:
  std::vector<std::pair<std::string, std::string>> members_;
  std::map<std::string, std::size_t> places_;  // indices of keys
};

/// Whether `value` is one of these strings.
[[nodiscard]] bool is_text(const boost::json::value& value, std::initializer_list<std::string_view> texts);

}  // namespace ranvier::models
