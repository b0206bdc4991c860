// The config.json of a model in a Hugging Face folder: reading its values with errors that name file and key, and
// writing it again with all that is not ours left as it was. Any thread.
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
  /// `text` of the file at `path`. Throws ErrorCode::data, naming it, for what is no JSON object, or too long.
  ConfigFile(std::string_view text, std::filesystem::path path);

  [[nodiscard]] const std::string& text() const noexcept { return text_; }
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

  /// Whether the key is there, even with the value null.
  [[nodiscard]] bool has(std::string_view key) const { return object_.contains(key); }
  /// Null also for keys that are there with the value null.
  [[nodiscard]] const boost::json::value* find(std::string_view key) const;

  // Each throws ErrorCode::data, naming file, key and value, for a value of another kind.

  /// A whole number from `least` on; `otherwise` where the key is missing or null, and an error where there is none.
  [[nodiscard]] int size(std::string_view key, std::optional<int> otherwise = {}, int least = 1) const;
  /// A number above 0, likewise.
  [[nodiscard]] double number(std::string_view key, std::optional<double> otherwise = {}) const;
  /// From 0 to 1 (excluded), likewise.
  [[nodiscard]] float rate(std::string_view key, float otherwise) const;
  [[nodiscard]] bool flag(std::string_view key, bool otherwise) const;
  /// "" where the key is missing or null.
  [[nodiscard]] std::string word(std::string_view key) const;
  /// Whether any key has an object.
  [[nodiscard]] bool has_objects() const;
  /// The object under this key as a file of its own; none where it is missing or null.
  [[nodiscard]] std::optional<ConfigFile> object(std::string_view key) const;

  /// Fails unless the key is missing, null, or has a value that `accepts`; `computed` says what that would be.
  void require(std::string_view key, const std::function<bool(const boost::json::value&)>& accepts,
               const std::string& computed) const;
  void require(std::string_view key, const boost::json::value& value, const std::string& computed) const;

  /// Refuses quantized weights, whose tensors are not the model's.
  void require_unquantized() const;

  /// That these weights cannot be used.
  [[noreturn]] void refuse(std::string_view key, const std::string& computed) const;

 private:
  ConfigFile(boost::json::object object, std::filesystem::path path)
      : path_(std::move(path)), object_(std::move(object)) {}

  std::filesystem::path path_;
  std::string text_;
  boost::json::object object_;
};

/// Keys and values of a JSON object in their order, the values as they are written.
class JsonMembers {
 public:
  /// `text` is known to be a JSON object and outlives this.
  explicit JsonMembers(std::string_view text);

  [[nodiscard]] bool has(const std::string& key) const { return places_.contains(key); }
  /// In its place, or at the end.
  void set(const std::string& key, std::string value);
  /// Sets fp32, which trained tensors are, as the type in which transformers loads all of them.
  void set_fp32();
  [[nodiscard]] std::string json() const;

 private:
  void skip_blanks();
  void skip_string();
  std::string_view take_value();

  std::string_view text_;
  std::size_t at_ = 0;
  std::vector<std::pair<std::string, std::string>> members_;
  std::map<std::string, std::size_t> places_;  // of keys
};

/// Whether `value` is one of these texts.
[[nodiscard]] bool is_text(const boost::json::value& value, std::initializer_list<std::string_view> texts);

}  // namespace ranvier::models
