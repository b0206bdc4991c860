#include "apps/checkpoint/checkpoint_tool.hpp"
#include "apps/checkpoint/saved_training.hpp"
#include "apps/view/history.hpp"
#include "models/weights/unit_weights.hpp"
#include "offload/checkpoint/reader.hpp"

#include <boost/json/serialize.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <span>
#include <vector>

namespace ranvier::apps {

namespace {

using offload::CheckpointReader;

constexpr std::size_t piece_elements = std::size_t{1} << 20;

struct Difference {
  std::uint64_t elements = 0;  ///< number of elements that differ in any bit
  double absolute = 0, relative = 0;
};

void add(Difference& sum, float a, float b) {
  if (std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b)) return;
  ++sum.elements;
  double absolute = std::abs(double{a} - double{b});
  double relative = absolute == 0 ? 0 : absolute / std::max(std::abs(double{a}), std::abs(double{b}));
  if (!std::isfinite(a) || !std::isfinite(b)) absolute = relative = std::numeric_limits<double>::infinity();
  sum.absolute = std::max(sum.absolute, absolute);
  sum.relative = std::max(sum.relative, relative);
}

/// Named section of an array.
struct Section {
  std::string name;
  std::size_t begin = 0, end = 0;
};

/// Tensors of a unit, and the gaps between them.
std::vector<Section> sections_of(const models::UnitSpec& unit) {
  std::vector<Section> sections;
  std::size_t at = 0;
  for (std::size_t i = 0; i < unit.parameters.size(); ++i) {
    const std::size_t begin = unit.offset(i), end = begin + unit.parameters[i].elements();
    if (begin > at) sections.push_back({"between tensors of " + unit.name, at, begin});
    sections.push_back({unit.parameters[i].name, begin, end});
    at = end;
  }
  if (at < unit.elements()) sections.push_back({"between tensors of " + unit.name, at, unit.elements()});
  return sections;
}

Difference compare(CheckpointReader& a, CheckpointReader& b, const offload::CheckpointArray& array,
                   const Section& section, std::vector<float>& left, std::vector<float>& right) {
  Difference sum;
  for (std::size_t begin = section.begin; begin < section.end; begin += piece_elements) {
    const std::size_t count = std::min(piece_elements, section.end - begin);
    const auto of_a = std::span(left).first(count), of_b = std::span(right).first(count);
    a.read(array.unit, array.name, begin, of_a);
    b.read(array.unit, array.name, begin, of_b);
    for (std::size_t i = 0; i < count; ++i) add(sum, of_a[i], of_b[i]);
  }
  return sum;
}

/// Lines for differing members of two objects (options or scalars).
std::string differences(const boost::json::object& a, const boost::json::object& b, std::string_view prefix) {
  std::set<std::string> names;
  for (const auto* each : {&a, &b})
    for (const auto& [name, value] : *each) names.insert(std::string(name));
  const auto text = [](const boost::json::object& object, const std::string& name) {
    const auto* const value = object.if_contains(name);
    if (value == nullptr) return std::string("(none)");
    const auto* const words = value->if_string();
    return words == nullptr ? boost::json::serialize(*value) : words->empty() ? "(empty)" : std::string(*words);
  };
  const auto shown = [&](const boost::json::object& object, const std::string& name) {
    const auto* const value = object.if_contains(name);
    return value != nullptr && value->is_array() ? fmt::format("{} values", value->get_array().size())
                                                 : text(object, name);
  };
  std::string lines;
  for (const std::string& name : names)
    if (text(a, name) != text(b, name))
      lines += fmt::format("  {}{:<22} {} | {}\n", prefix, name, shown(a, name), shown(b, name));
  return lines;
}

boost::json::object options_of(const offload::Manifest& manifest) {
  const auto* const options = object_of(manifest.about, "options");
  return options != nullptr ? *options : boost::json::object();
}

}  // namespace

CheckpointToolResult compare_checkpoints(const CheckpointToolOptions& options) {
  CheckpointReader a(checkpoint_at(options.paths[0])), b(checkpoint_at(options.paths[1]));
  CheckpointToolResult result;
  const auto differ = [&](const std::string& title, const std::string& lines) {
    if (lines.empty()) return false;
    result.text += title + "\n" + lines;
    return true;
  };
  if (a.manifest().step != b.manifest().step) {
    result.text += fmt::format("step {} | {}\n", a.manifest().step, b.manifest().step);
    result.status = 1;
  }
  if (differ("scalars", differences(a.manifest().training, b.manifest().training, ""))) result.status = 1;
  differ("options", differences(options_of(a.manifest()), options_of(b.manifest()), "--"));

  const auto model = saved_model(a.manifest(), a.path());
  std::string lines;
  std::size_t compared = 0, unequal = 0;
  std::vector<float> left(piece_elements), right(piece_elements);
  for (const offload::CheckpointArray& array : a.manifest().arrays) {
    const offload::CheckpointArray* const other = b.find(array.unit, array.name);
    if (other == nullptr || other->elements != array.elements) {
      lines += fmt::format("  {:<8}{}: {}\n", array.name, array.unit,
                           other == nullptr ? "only in the first"
                                            : fmt::format("{} elements | {}", array.elements, other->elements));
      result.status = 1;
      continue;
    }
    std::vector<Section> sections{{array.unit, 0, array.elements}};
    if (model) {
      const auto unit =
          std::ranges::find_if(model->units, [&](const models::UnitSpec& each) { return each.name == array.unit; });
      if (unit != model->units.end() && unit->elements() == array.elements) sections = sections_of(*unit);
    }
    for (const Section& section : sections) {
      const Difference sum = compare(a, b, array, section, left, right);
      ++compared;
      if (sum.elements == 0) continue;
      ++unequal;
      lines += fmt::format("  {:<8}{:<32} {:>10} of {} differ, at most by {:.3g}, relative {:.3g}\n", array.name,
                           section.name, sum.elements, section.end - section.begin, sum.absolute, sum.relative);
    }
  }
  for (const offload::CheckpointArray& array : b.manifest().arrays)
    if (a.find(array.unit, array.name) == nullptr)
      lines += fmt::format("  {:<8}{}: only in the second\n", array.name, array.unit);
  if (differ("states", lines)) result.status = 1;
  result.text += unequal == 0 && lines.empty()
                     ? fmt::format("all {} tensors and states are bit-identical\n", compared)
                     : fmt::format("{} of {} tensors and states are bit-identical\n", compared - unequal, compared);
  return result;
}

}  // namespace ranvier::apps
