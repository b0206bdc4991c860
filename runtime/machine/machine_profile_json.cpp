#include "runtime/base/error.hpp"
#include "runtime/base/names.hpp"
#include "runtime/machine/machine_profile.hpp"

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <concepts>
#include <limits>
#include <type_traits>

namespace ranvier::runtime {

namespace {

namespace json = boost::json;

/// Rule for a key: numbers are at least `least`, which is the default of an optional number.
struct Rule {
  bool required = false;
  double least = 0;
};
constexpr double min_rate = std::numeric_limits<double>::min();  // smallest positive value

constexpr DType dtypes[] = {DType::f32, DType::bf16, DType::f16};

using KindRates = std::array<WorkRate, work_kinds>;

// visit() calls at(key, field, rule) for all keys of an object, in the order in which they are written; at() returns
// whether the object has the key. `At` is Reader or Writer.

template <typename At>
void visit(At& at, WorkRate& rate) {
  at("launch_seconds", rate.launch_seconds);
  at("flops_per_second", rate.flops_per_second);
  at("bytes_per_second", rate.bytes_per_second);
  at("crowding", rate.crowding);
}

template <typename At>
void visit(At& at, KindRates& rates) {
  for (std::size_t kind = 0; kind < work_kinds; ++kind) at(to_string(static_cast<WorkKind>(kind)), rates[kind]);
}

template <typename At>
void visit(At& at, ProductRate& product) {
  at("m", product.shape.m, {true, 1});
  at("n", product.shape.n, {true, 1});
  at("k", product.shape.k, {true, 1});
  at("flops_per_second", product.flops_per_second, {true, min_rate});
}

template <typename At, typename T>
void visit(At& at, std::map<DType, T>& by_type) {
  for (const DType dtype : dtypes) {
    T value = by_type.contains(dtype) ? by_type.at(dtype) : T{};
    if (at(to_string(dtype), value, {.least = min_rate})) by_type[dtype] = std::move(value);
  }
}

template <typename At>
void visit(At& at, Link& link) {
  at("latency_seconds", link.latency_seconds, {true});
  at("bytes_per_second", link.bytes_per_second, {true, min_rate});
  at("node_bytes_per_second", link.node_bytes_per_second, {true, min_rate});
}

template <typename At>
void visit(At& at, Links& links) {
  at("intra_node", links.intra_node);
  at("inter_node", links.inter_node);
}

template <typename At>
void visit(At& at, MachineProfile& profile) {
  at("name", profile.name, {true});
  at("source", profile.source, {true});
  at("gpu", profile.gpu, {true});
  at("threads", profile.threads, {.least = 1});
  at("cores", profile.cores, {true, 1});
  at("device_memory", profile.device_memory, {true, 1});
  at("host_memory", profile.host_memory, {true, 1});
  at("disk", profile.disk);
  at("peak_flops_per_second", profile.peak_flops_per_second);
  at("rates", profile.rates);
  at("products", profile.products);
  at("host_rates", profile.host_rates);
  at("read_bytes_per_second", profile.read_bytes_per_second);
  at("write_bytes_per_second", profile.write_bytes_per_second);
  at("file_latency_seconds", profile.file_latency_seconds);
  at("handler_seconds", profile.handler_seconds);
  at("crowding", profile.crowding, {.least = 1});
  at("price_per_hour", profile.price_per_hour);
  at("links", profile.links);
}

/// File that is read, for messages, and the sizes of its positive numbers.
struct Source {
  std::string_view name;
  const char* remedy;
  double min_size = 0, max_size = std::numeric_limits<double>::infinity();

  template <typename... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ErrorCode::usage, "{}: {}; {}", name, fmt::format(format, std::forward<Args>(args)...), remedy);
  }
};

/// Sets fields to the values of an object's keys.
class Reader {
 public:
  /// `where`: the object's name in messages; empty: the document.
  Reader(const Source& source, const json::object& object, std::string where)
      : source_(source), object_(object), where_(std::move(where)) {}

  template <typename T>
  void read(T& to) {
    visit(*this, to);
    for (const auto& entry : object_) {
      const std::string key(entry.key());
      if (std::find(keys_.begin(), keys_.end(), key) != keys_.end()) continue;
      const auto nearest = nearest_name(key, keys_);
      source_.refuse(
          "has an unknown key '{}'{}: {}", key, where_.empty() ? "" : fmt::format(" in '{}'", where_),
          nearest ? fmt::format("perhaps '{}'", *nearest) : fmt::format("there are {}", fmt::join(keys_, ", ")));
    }
    if (!missing_.empty()) source_.refuse("lacks '{}'", missing_);
  }

  template <typename T>
  bool operator()(std::string_view key, T& field, const Rule& rule = {}) {
    const std::string name = where_.empty() ? std::string(key) : fmt::format("{}.{}", where_, key);
    keys_.emplace_back(key);
    const json::value* const value = object_.if_contains(key);
    if (value != nullptr) read(*value, name, field, rule.least);
    if (value == nullptr && rule.required && missing_.empty()) missing_ = name;
    return value != nullptr;
  }

 private:
  template <typename T>
  void read(const json::value& value, const std::string& name, T& to, double least) const {
    const auto require = [&](bool condition, const char* otherwise) {
      if (!condition) source_.refuse("has a '{}' that is {}", name, otherwise);
    };
    if constexpr (std::same_as<T, std::string>) {
      require(value.is_string(), "not a text");
      to = std::string_view(value.get_string());
    } else if constexpr (std::same_as<T, bool>) {
      require(value.is_bool(), "neither true nor false");
      to = value.get_bool();
    } else if constexpr (std::is_arithmetic_v<T>) {
      json::error_code error;
      to = value.to_number<T>(error);
      constexpr bool whole = std::integral<T>;
      const auto size = static_cast<double>(to);
      const bool usual = whole || size == 0 || (size > source_.min_size && size < source_.max_size);
      require(!error && size >= least && usual,
              fmt::format("not a {} {}",
                          whole                    ? "whole number"
                          : source_.min_size > 0.0 ? "number of a usual size (1e-30 to 1e30)"
                                                   : "number",
                          least == 0  ? "from 0 on"
                          : least < 1 ? "above 0"
                                      : "from 1 on")
                  .c_str());
      if (to == 0) to = 0;  // no -0, whose text is not read back as the same value
    } else if constexpr (std::same_as<T, std::vector<ProductRate>>) {
      require(value.is_array(), "not an array");
      for (const json::value& each : value.get_array()) {
        const std::string place = fmt::format("{}[{}]", name, to.size());
        read(each, place, to.emplace_back(), 0);
      }
    } else {
      require(value.is_object(), "not an object");
      Reader(source_, value.get_object(), name).read(to);
      if constexpr (std::same_as<T, WorkRate>) {
        if (to == WorkRate{}) source_.refuse("has no rate above 0 in '{}'", name);
      }
    }
  }

  const Source& source_;
  const json::object& object_;
  const std::string where_;
  std::vector<std::string> keys_;
  std::string missing_;  // name of the first missing key
};

template <typename T>
T parse(std::string_view text, const Source& source) {
  json::error_code error;
  const json::value document = json::parse({text.data(), text.size()}, error);
  if (error) source.refuse("is not JSON ({})", error.message());
  if (!document.is_object()) source.refuse("is not a JSON object");
  T result;
  Reader(source, document.get_object(), "").read(result);
  return result;
}

/// Makes an object from fields, without optional ones that have their default.
class Writer {
 public:
  template <typename T>
  bool operator()(std::string_view key, T& field, const Rule& rule = {}) {
    if (!rule.required && is_default(field, rule.least)) return false;
    object_[key] = value_of(field);
    return true;
  }

  template <typename T>
  [[nodiscard]] static json::value value_of(T& from) {
    if constexpr (std::is_arithmetic_v<T> || std::same_as<T, std::string>) {
      return json::value(from);
    } else if constexpr (std::same_as<T, std::vector<ProductRate>>) {
      json::array array;
      for (ProductRate& each : from) array.push_back(value_of(each));
      return array;
    } else {
      Writer writer;
      visit(writer, from);
      return writer.object_;
    }
  }

 private:
  template <typename T>
  [[nodiscard]] static bool is_default(const T& field, double least) {
    if constexpr (std::is_arithmetic_v<T>) {
      return field == T{} || static_cast<double>(field) == least;
    } else if constexpr (std::same_as<T, Link>) {
      return !field.measured();
    } else {
      return field == T{};
    }
  }

  json::object object_;
};

/// Text with one line per value, except in objects without further objects. `number` is the format of a double.
std::string text_of(const json::value& value, const char* number, const std::string& line = "\n") {
  if (value.is_double()) return fmt::format(fmt::runtime(number), value.get_double());
  if (!value.is_structured()) return json::serialize(value);
  bool nested = line == "\n";
  std::vector<std::string> parts;
  const auto add = [&](const std::string& key, const json::value& part) {
    nested = nested || part.is_structured();
    parts.push_back(key + text_of(part, number, line + "  "));
  };
  if (value.is_array()) {
    for (const json::value& part : value.get_array()) add("", part);
  } else {
    for (const auto& entry : value.get_object())
      add(fmt::format("\"{}\": ", std::string_view(entry.key())), entry.value());
  }
  return fmt::format("{}{}{}{}{}", value.is_array() ? "[" : "{", nested ? line + "  " : "",
                     fmt::join(parts, nested ? "," + line + "  " : ", "), nested ? line : "",
                     value.is_array() ? "]" : "}");
}

}  // namespace

MachineProfile parse_machine_profile(std::string_view json, std::string_view source) {
  const Source file{.name = source,
                    .remedy = "create a complete profile with ranvier-bench profile `write_profile` FILE",
                    // Values that nine digits round to between 1e-30 and 1e30.
                    .min_size = 0.9999999995e-30,
                    .max_size = 1.0000000005e30};
  auto profile = parse<MachineProfile>(json, file);
  for (const WorkKind kind :
       {WorkKind::product, WorkKind::elementwise}) {  // other kinds and types fall back on them
    const bool has = std::any_of(profile.rates.begin(), profile.rates.end(), [&](const auto& entry) {
      return entry.second[static_cast<std::size_t>(kind)] != WorkRate{};
    });
    if (!has) file.refuse("lacks a rate of '{}' for any type in 'rates'", to_string(kind));
  }
  return profile;
}

std::string to_json(const MachineProfile& profile) {
  MachineProfile written = profile;
  // As many digits as the parser keeps, so that reading and writing again gives the same text.
  return text_of(Writer::value_of(written), "{:.9g}") + "\n";
}

Links parse_links(std::string_view json, std::string_view source) {
  const Source file{
      .name = source,
      .remedy =
          R"(write {"intra_node": {"latency_seconds": …, "bytes_per_second": …, "node_bytes_per_second": …}, )"
          R"("inter_node": {the same keys}})"};
  const auto links = parse<Links>(json, file);
  if (links == Links{}) file.refuse("has no link class");
  return links;
}

std::string to_json(const Links& links) {
  Links written = links;
  return text_of(Writer::value_of(written), "{}") + "\n";
}

}  // namespace ranvier::runtime
