#include "models/weights/weight_layout.hpp"

#include "models/weights/unit_weights.hpp"
#include "runtime/base/error.hpp"

#include <boost/json/serialize.hpp>
#include <boost/json/string.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace ranvier::models {

WeightLayout::WeightLayout(std::span<const UnitSpec> units, std::uint64_t max_bytes, std::string single,
                           const TensorTypes& types)
    : single_(std::move(single)) {
  std::vector<TensorToStore> tensors = tensors_of(units);
  for (TensorToStore& tensor : tensors)
    if (const auto type = types.find(tensor.name); type != types.end()) tensor.dtype = type->second;
  for (std::size_t first = 0, next = 0; first < tensors.size() || files_.empty(); first = next) {
    std::uint64_t values = 0;
    for (; next < tensors.size() && (next == first || values + tensors[next].bytes() <= max_bytes); ++next)
      values += tensors[next].bytes();
    const auto inside = std::span(tensors).subspan(first, next - first);
    std::ranges::stable_partition(inside, [](const auto& tensor) { return tensor.dtype == runtime::DType::f32; });
    File file{.header = safetensors_header(inside)};
    file.bytes = file.header.size();
    for (const TensorToStore& tensor : inside) {
      places_[tensor.name] = {files_.size(), file.bytes, tensor.dtype};
      file.bytes += tensor.bytes();
      elements_ += tensor.elements();
      value_bytes_ += tensor.bytes();
    }
    files_.push_back(std::move(file));
  }
}

std::string WeightLayout::name(std::size_t file, std::string_view stem) const {
  if (files_.size() == 1) return single_;
  return fmt::format("{}-{:05}-of-{:05}.safetensors", stem, file + 1, files_.size());
}

std::string WeightLayout::index(std::string_view stem) const {
  std::string map;
  for (const auto& [tensor, place] : places_)
    map += fmt::format("{}    {}: \"{}\"", map.empty() ? "" : ",\n",
                       boost::json::serialize(boost::json::string(tensor)), name(place.file, stem));
  return fmt::format("{{\n  \"metadata\": {{\n    \"total_size\": {}\n  }},\n  \"weight_map\": {{\n{}\n  }}\n}}\n",
                     value_bytes_, map);
}

std::uint64_t WeightLayout::bytes() const {
  return std::accumulate(files_.begin(), files_.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const File& file) { return sum + file.bytes; });
}

std::vector<WeightLayout::Run> WeightLayout::runs(const UnitSpec& unit, std::size_t begin, std::size_t end) const {
  std::vector<Run> runs;
  for_each_part(
      unit, begin, end, [&](const ParameterSpec& parameter, std::size_t first, std::size_t count, std::size_t at) {
        const auto place = places_.find(parameter.name);
        expect(place != places_.end(), "no file contains tensor '{}'", parameter.name);
        const FileOffset& start = place->second;
        const std::size_t element = runtime::size_of(start.dtype);
        const Run run{start.file, start.offset + first * element, at, count, start.dtype};
        Run* const last = runs.empty() ? nullptr : &runs.back();
        if (last != nullptr && last->file == run.file && last->dtype == run.dtype &&
            last->begin + last->count == run.begin && last->offset + last->count * element == run.offset) {
          last->count += run.count;
        } else {
          runs.push_back(run);
        }
      });
  return runs;
}

}  // namespace ranvier::models
