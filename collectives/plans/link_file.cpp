#include "collectives/plans/link_file.hpp"

#include "runtime/base/error.hpp"
#include "runtime/base/names.hpp"
#include "runtime/files/memory_map.hpp"

#include <boost/json/parse.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

namespace ranvier::collectives {

namespace {

namespace json = boost::json;

struct Key {
  const char* name;
  double Link::* field;
};
constexpr Key keys[] = {{"latency_seconds", &Link::latency_seconds},
                        {"bytes_per_second", &Link::bytes_per_second},
                        {"node_bytes_per_second", &Link::node_bytes_per_second}};

struct Class {
  const char* name;
  Link Links::* field;
};
constexpr Class classes[] = {{"intra_node", &Links::intra_node}, {"inter_node", &Links::inter_node}};

constexpr const char* form =
    R"(write {"intra_node": {"latency_seconds": …, "bytes_per_second": …, "node_bytes_per_second": …}, )"
    R"("inter_node": {the same keys}})";

[[noreturn]] void refuse(std::string_view source, const std::string& what) {
  fail(ErrorCode::usage, "{}: {}: {}", source, what, form);
}

const json::object& object_of(const json::value& value, std::string_view source, const std::string& otherwise) {
  if (!value.is_object()) refuse(source, otherwise);
  return value.get_object();
}

template <typename Known, std::size_t count>
void check_names(const json::object& object, std::string_view source, const Known (&known)[count], const char* what,
                 const std::string& where) {
  std::vector<std::string> names;
  for (const Known& each : known) names.emplace_back(each.name);
  for (const auto& entry : object) {
    const std::string name(entry.key());
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    const auto nearest = runtime::nearest_name(name, names);
    refuse(source, fmt::format("has an unknown {} '{}'{}{}", what, name, where,
                               nearest ? fmt::format(", perhaps '{}'", *nearest) : ""));
  }
}

}  // namespace

Links parse_links(std::string_view text, std::string_view source) {
  json::error_code error;
  const json::value document = json::parse({text.data(), text.size()}, error);
  if (error) refuse(source, fmt::format("is not JSON ({})", error.message()));
  const json::object& all = object_of(document, source, "is not a JSON object");
  check_names(all, source, classes, "link class", "");
  if (all.empty()) refuse(source, "has no link class");
  Links result;
  for (const auto& [of_class, link] : classes) {
    const json::value* const entry = all.if_contains(of_class);
    if (entry == nullptr) continue;
    const json::object& object =
        object_of(*entry, source, fmt::format("has a class '{}' that is not an object", of_class));
    check_names(object, source, keys, "key", fmt::format(" in '{}'", of_class));
    for (const auto& [name, field] : keys) {
      const json::value* const value = object.if_contains(name);
      if (value == nullptr) refuse(source, fmt::format("lacks '{}' in '{}'", name, of_class));
      const auto number = value->to_number<double>(error);
      const bool latency = field == &Link::latency_seconds;
      if (error || !std::isfinite(number) || number < 0 || (number == 0 && !latency)) {
        refuse(source, fmt::format("has a '{}' in '{}' that is not {}", name, of_class,
                                   latency ? "a number of at least 0" : "a number above 0"));
      }
      result.*link.*field = number;
    }
  }
  return result;
}

Links read_links(const std::filesystem::path& path) {
  const std::string source = fmt::format("`links` {}", path.string());
  std::string text;
  try {
    text = runtime::MemoryMap(path).text();
  } catch (const Error& error) {
    fail(ErrorCode::usage, "{}: cannot read: {}", source, error.what());
  }
  return parse_links(text, source);
}

void require_classes(const Links& links, std::span<const int> node_of, std::string_view source) {
  std::map<int, int> ranks;
  for (const int node : node_of) ++ranks[node];
  const bool shared = std::any_of(ranks.begin(), ranks.end(), [](const auto& node) { return node.second > 1; });
  const auto require = [&](const char* of_class, const Link& link, const std::string& why) {
    if (link.measured()) return;
    fail(ErrorCode::usage,
         "{}: no entry for links of class '{}', but {}; run ranvier-bench `write_links` FILE on the job's nodes",
         source, of_class, why);
  };
  if (shared) require("intra_node", links.intra_node, "ranks of this run share a node");
  if (ranks.size() > 1) {
    require("inter_node", links.inter_node, fmt::format("the ranks of this run are on {} nodes", ranks.size()));
  }
}

std::string to_json(const Links& links) {
  std::string text = "{";
  for (const auto& [of_class, link] : classes) {
    if (!(links.*link).measured()) continue;
    text += fmt::format("{}\"{}\": {{", text.size() == 1 ? "" : ",\n ", of_class);
    for (const auto& [name, field] : keys) {
      text += fmt::format("{}\"{}\": {}", &field == &keys[0].field ? "" : ", ", name, links.*link.*field);
    }
    text += "}";
  }
  return text + "}\n";
}

}  // namespace ranvier::collectives
