#include "runtime/base/error.hpp"
#include "runtime/base/names.hpp"
#include "runtime/machine/machine_profile.hpp"

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <concepts>
#include <iterator>
#include <limits>
#include <type_traits>

namespace ranvier::runtime {

namespace {

namespace json = boost::json;

template <typename Owner, typename Number>
struct Key {
  const char* name;
  Number Owner::* field;
  bool required = false;
  double least = 0;
};

constexpr Key<MachineProfile, std::string> texts[] = {{"name", &MachineProfile::name, true},
                                                      {"source", &MachineProfile::source, true}};
constexpr Key<MachineProfile, int> counts[] = {{"threads", &MachineProfile::threads, false, 1},
                                               {"cores", &MachineProfile::cores, true, 1}};
constexpr Key<MachineProfile, std::size_t> sizes[] = {{"device_memory", &MachineProfile::device_memory, true, 1},
                                                      {"host_memory", &MachineProfile::host_memory, true, 1},
                                                      {"disk", &MachineProfile::disk}};
constexpr Key<MachineProfile, double> numbers[] = {
    {"read_bytes_per_second", &MachineProfile::read_bytes_per_second},
    {"write_bytes_per_second", &MachineProfile::write_bytes_per_second},
    {"file_latency_seconds", &MachineProfile::file_latency_seconds},
    {"handler_seconds", &MachineProfile::handler_seconds},
    {"crowding", &MachineProfile::crowding, false, 1},
    {"price_per_hour", &MachineProfile::price_per_hour}};
constexpr const char* others[] = {"gpu", "peak_flops_per_second", "rates", "products", "host_rates", "links"};

constexpr Key<WorkRate, double> work_rate[] = {{"launch_seconds", &WorkRate::launch_seconds},
                                               {"flops_per_second", &WorkRate::flops_per_second},
                                               {"bytes_per_second", &WorkRate::bytes_per_second},
                                               {"crowding", &WorkRate::crowding}};
constexpr Key<ProductShape, std::size_t> product_shape[] = {
    {"m", &ProductShape::m, true, 1}, {"n", &ProductShape::n, true, 1}, {"k", &ProductShape::k, true, 1}};
// Limits of positive numbers: values that nine digits round to between 1e-30 and 1e30.
constexpr double min_size = 0.9999999995e-30, largest_size = 1.0000000005e30;
constexpr double min_rate = std::numeric_limits<double>::min();  // smallest positive value
constexpr Key<ProductRate, double> product_rate[] = {
    {"flops_per_second", &ProductRate::flops_per_second, true, min_rate}};
constexpr Key<Link, double> link_keys[] = {{"latency_seconds", &Link::latency_seconds, true},
                                           {"bytes_per_second", &Link::bytes_per_second, true, min_rate},
                                           {"node_bytes_per_second", &Link::node_bytes_per_second, true, min_rate}};
constexpr Key<Links, Link> classes[] = {{"intra_node", &Links::intra_node}, {"inter_node", &Links::inter_node}};

constexpr DType dtypes[] = {DType::f32, DType::bf16, DType::f16};

std::vector<std::string> dtype_names() {
  std::vector<std::string> names;
  for (const DType dtype : dtypes) names.emplace_back(to_string(dtype));
  return names;
}

std::vector<std::string> kind_names() {
  std::vector<std::string> names;
  for (std::size_t kind = 0; kind < work_kinds; ++kind) names.emplace_back(to_string(static_cast<WorkKind>(kind)));
  return names;
}

template <typename... Known>
std::vector<std::string> names_of(const Known&... known) {
  std::vector<std::string> names;
  (std::transform(std::begin(known), std::end(known), std::back_inserter(names),
                  [](const auto& key) {
                    if constexpr (requires { key.name; }) {
                      return std::string(key.name);
                    } else {
                      return std::string(key);
                    }
                  }),
   ...);
  return names;
}

class Reader {
 public:
  explicit Reader(std::string_view source) : source_(source) {}

  [[nodiscard]] MachineProfile profile(std::string_view text) const {
    json::error_code error;
    const json::value document = json::parse({text.data(), text.size()}, error);
    if (error) refuse("is not JSON ({})", error.message());
    if (!document.is_object()) refuse("is not a JSON object");
    const json::object& object = document.get_object();
    check_names(object, names_of(texts, counts, sizes, numbers, others), "key", "");
    MachineProfile result;
    read(object, texts, result, "");
    read(object, counts, result, "");
    read(object, sizes, result, "");
    read(object, numbers, result, "");
    const json::value* const gpu = object.if_contains("gpu");
    if (gpu == nullptr) refuse("lacks 'gpu'");
    if (!gpu->is_bool()) refuse("has a 'gpu' that is neither true nor false");
    result.gpu = gpu->get_bool();
    by_dtype(object, "peak_flops_per_second", [&](DType dtype, const json::value& value, const std::string& where) {
      result.peak_flops_per_second[dtype] = number<double>(value, where, min_rate);
    });
    by_dtype(object, "rates", [&](DType dtype, const json::value& value, const std::string& where) {
      result.rates[dtype] = kinds(value, where);
    });
    by_dtype(object, "products", [&](DType dtype, const json::value& value, const std::string& where) {
      result.products[dtype] = products(value, where);
    });
    if (const json::value* const host = object.if_contains("host_rates"))
      result.host_rates = kinds(*host, "host_rates");
    if (const json::value* const links = object.if_contains("links")) result.links = links_of(*links);
    require_rates(result);
    return result;
  }

 private:
  using KindRates = std::array<WorkRate, work_kinds>;

  [[nodiscard]] KindRates kinds(const json::value& value, const std::string& where) const {
    const json::object& object = object_of(value, where);
    const auto names = kind_names();
    check_names(object, names, "kind of work", where);
    KindRates result{};
    for (std::size_t kind = 0; kind < work_kinds; ++kind) {
      const json::value* const rate = object.if_contains(names[kind]);
      if (rate == nullptr) continue;
      const std::string here = where + "." + names[kind];
      const json::object& fields = object_of(*rate, here);
      check_names(fields, names_of(work_rate), "key", here);
      read(fields, work_rate, result[kind], here);
      if (result[kind] == WorkRate{}) refuse("has no rate above 0 in '{}'", here);
    }
    return result;
  }

  [[nodiscard]] std::vector<ProductRate> products(const json::value& value, const std::string& where) const {
    if (!value.is_array()) refuse("has a '{}' that is not an array", where);
    std::vector<ProductRate> result;
    for (const json::value& each : value.get_array()) {
      const std::string here = fmt::format("{}[{}]", where, result.size());
      const json::object& object = object_of(each, here);
      check_names(object, names_of(product_shape, product_rate), "key", here);
      ProductRate rate;
      read(object, product_shape, rate.shape, here);
      read(object, product_rate, rate, here);
      result.push_back(rate);
    }
    return result;
  }

  [[nodiscard]] Links links_of(const json::value& value) const {
    const json::object& object = object_of(value, "links");
    check_names(object, names_of(classes), "class of links", "links");
    Links result;
    for (const auto& [name, field, required, least] : classes) {
      const json::value* const link = object.if_contains(name);
      if (link == nullptr) continue;
      const std::string here = fmt::format("links.{}", name);
      const json::object& fields = object_of(*link, here);
      check_names(fields, names_of(link_keys), "key", here);
      read(fields, link_keys, result.*field, here);
    }
    return result;
  }

  /// Throws unless these rates exist: other kinds and types fall back on them.
  void require_rates(const MachineProfile& profile) const {
    for (const WorkKind kind : {WorkKind::product, WorkKind::elementwise}) {
      const bool has = std::any_of(profile.rates.begin(), profile.rates.end(), [&](const auto& entry) {
        return entry.second[static_cast<std::size_t>(kind)] != WorkRate{};
      });
      if (!has) refuse("lacks a rate of '{}' for any type in 'rates'", to_string(kind));
    }
  }

  template <typename Take>
  void by_dtype(const json::object& object, const char* name, const Take& take) const {
    const json::value* const value = object.if_contains(name);
    if (value == nullptr) return;
    const json::object& entries = object_of(*value, name);
    check_names(entries, dtype_names(), "type", name);
    for (const DType dtype : dtypes) {
      if (const json::value* const entry = entries.if_contains(to_string(dtype)))
        take(dtype, *entry, fmt::format("{}.{}", name, to_string(dtype)));
    }
  }

  template <typename Owner, typename Value, std::size_t count>
  void read(const json::object& object, const Key<Owner, Value> (&keys)[count], Owner& owner,
            const std::string& where) const {
    for (const auto& key : keys) {
      const json::value* const value = object.if_contains(key.name);
      const std::string name = where.empty() ? key.name : where + "." + key.name;
      if (value == nullptr) {
        if (key.required) refuse("lacks '{}'", name);
        continue;
      }
      if constexpr (std::is_same_v<Value, std::string>) {
        if (!value->is_string()) refuse("has a '{}' that is not a text", name);
        owner.*key.field = std::string(value->get_string());
      } else {
        owner.*key.field = number<Value>(*value, name, key.least);
      }
    }
  }

  template <typename Number>
  [[nodiscard]] Number number(const json::value& value, const std::string& name, double least) const {
    json::error_code error;
    const auto result = value.to_number<Number>(error);
    bool sensible = !error && static_cast<double>(result) >= least;
    if constexpr (std::floating_point<Number>)
      sensible = sensible && (result == 0 || (result > min_size && result < largest_size));
    if (!sensible) {
      refuse("has a '{}' that is not a {} {}", name,
             std::integral<Number> ? "whole number" : "number of a usual size (1e-30 to 1e30)",
             least == 0  ? "from 0 on"
             : least < 1 ? "above 0"
                         : "from 1 on");
    }
    return result == 0 ? 0 : result;  // no -0, whose text is not read back as the same value
  }

  [[nodiscard]] const json::object& object_of(const json::value& value, const std::string& where) const {
    if (!value.is_object()) refuse("has a '{}' that is not an object", where);
    return value.get_object();
  }

  void check_names(const json::object& object, const std::vector<std::string>& names, const char* what,
                   const std::string& where) const {
    for (const auto& entry : object) {
      const std::string name(entry.key());
      if (std::find(names.begin(), names.end(), name) != names.end()) continue;
      const auto nearest = nearest_name(name, names);
      refuse("has an unknown {} '{}'{}: {}", what, name, where.empty() ? "" : fmt::format(" in '{}'", where),
             nearest ? fmt::format("perhaps '{}'", *nearest) : fmt::format("there are {}", fmt::join(names, ", ")));
    }
  }

  template <typename... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    fail(ErrorCode::usage, "{}: {}; create a complete profile with ranvier-bench profile `write_profile` FILE",
         source_, fmt::format(format, std::forward<Args>(args)...));
  }

  std::string_view source_;
};

/// Text with as many digits as the parser keeps, so that reading and writing again gives the same text.
template <typename Number>
std::string number_text(Number value) {
  if constexpr (std::integral<Number>) {
    return fmt::format("{}", value);
  } else {
    return fmt::format("{:.9g}", value);
  }
}

/// Writer of {"key": value, …}, on one line or several.
class Writer {
 public:
  explicit Writer(std::string indent = "") : indent_(std::move(indent)) {}

  void add(std::string_view key, const std::string& value) {
    text_ += fmt::format("{}{}\"{}\": {}", text_.empty() ? "" : indent_.empty() ? ", " : ",", line(), key, value);
  }
  template <typename Owner, typename Number, std::size_t count>
  void add(const Key<Owner, Number> (&keys)[count], const Owner& owner) {
    for (const auto& key : keys) {
      if (!key.required && owner.*key.field == Owner{}.*key.field) continue;
      if constexpr (std::is_same_v<Number, std::string>) {
        add(key.name, json::serialize(json::value(owner.*key.field)));
      } else {
        add(key.name, number_text(owner.*key.field));
      }
    }
  }

  [[nodiscard]] bool empty() const { return text_.empty(); }
  [[nodiscard]] std::string object() const {
    if (indent_.empty() || text_.empty()) return "{" + text_ + "}";
    return "{" + text_ + "\n" + indent_.substr(2) + "}";
  }

 private:
  [[nodiscard]] std::string line() const { return indent_.empty() ? "" : "\n" + indent_; }

  std::string indent_;
  std::string text_;
};

std::string kinds_json(const std::array<WorkRate, work_kinds>& rates, const std::string& indent) {
  Writer kinds(indent);
  for (std::size_t kind = 0; kind < work_kinds; ++kind) {
    if (rates[kind] == WorkRate{}) continue;
    Writer rate;
    rate.add(work_rate, rates[kind]);
    kinds.add(to_string(static_cast<WorkKind>(kind)), rate.object());
  }
  return kinds.object();
}

std::string products_json(const std::vector<ProductRate>& products, const std::string& indent) {
  std::string text;
  for (const ProductRate& product : products) {
    Writer one;
    one.add(product_shape, product.shape);
    one.add(product_rate, product);
    text += fmt::format("{}\n{}{}", text.empty() ? "" : ",", indent, one.object());
  }
  return "[" + text + "]";
}

}  // namespace

MachineProfile parse_machine_profile(std::string_view json, std::string_view source) {
  return Reader(source).profile(json);
}

std::string to_json(const MachineProfile& profile) {
  Writer all("  ");
  all.add(texts, profile);
  all.add("gpu", profile.gpu ? "true" : "false");
  all.add(counts, profile);
  all.add(sizes, profile);
  const auto by_dtype = [&](const char* name, const auto& entries, const auto& text_of) {
    Writer types("    ");
    for (const auto& [dtype, entry] : entries) types.add(to_string(dtype), text_of(entry));
    if (!types.empty()) all.add(name, types.object());
  };
  by_dtype("peak_flops_per_second", profile.peak_flops_per_second, number_text<double>);
  by_dtype("rates", profile.rates, [](const auto& rates_of) { return kinds_json(rates_of, "      "); });
  by_dtype("products", profile.products, [](const auto& products) { return products_json(products, "      "); });
  if (profile.host_rates != MachineProfile{}.host_rates)
    all.add("host_rates", kinds_json(profile.host_rates, "    "));
  all.add(numbers, profile);
  Writer links("    ");
  for (const auto& key : classes) {
    const Link& link = profile.links.*key.field;
    if (!link.measured()) continue;
    Writer one;
    one.add(link_keys, link);
    links.add(key.name, one.object());
  }
  if (!links.empty()) all.add("links", links.object());
  return all.object() + "\n";
}

}  // namespace ranvier::runtime
