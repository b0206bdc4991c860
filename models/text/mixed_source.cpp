#include "models/text/mixed_source.hpp"

#include "runtime/base/error.hpp"
#include "runtime/base/philox.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <numeric>

namespace ranvier::models {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t round_places = 1 << 16;

/// Splits the positions by weight; the rest after rounding goes to the largest remainders.
std::vector<std::int64_t> quotas_of(const std::vector<WeightedSource>& sources) {
  double sum = 0;
  for (const auto& one : sources) sum += one.weight;
  std::vector<std::int64_t> quotas;
  std::vector<double> lost;
  for (const auto& one : sources) {
    const double share = one.weight / sum * static_cast<double>(round_places);
    quotas.push_back(static_cast<std::int64_t>(std::floor(share)));
    lost.push_back(share - std::floor(share));
  }
  std::vector<std::size_t> order(sources.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return lost[a] > lost[b]; });
  const std::int64_t left = round_places - std::accumulate(quotas.begin(), quotas.end(), std::int64_t{0});
  for (std::int64_t i = 0; i < left; ++i) ++quotas[order[static_cast<std::size_t>(i) % order.size()]];
  for (std::size_t i = 0; i < quotas.size(); ++i)
    if (quotas[i] == 0)
      fail(ErrorCode::usage,
           "`data`: weight {} (total {}) is less than one of {} samples; increase the weight or remove the file",
           sources[i].weight, sum, round_places);
  return quotas;
}

}  // namespace

MixedSource::MixedSource(std::vector<WeightedSource> sources, std::optional<std::uint64_t> shuffle_seed)
    : sources_(std::move(sources)), quotas_(quotas_of(sources_)) {
  for (const auto& one : sources_) {
    expect(one.source->input_bytes() == input_bytes() && one.source->target_bytes() == target_bytes() &&
               one.source->document_positions() == document_positions(),
           "mixed sources have samples of different sizes");
    samples_ += one.source->samples();
  }
  std::vector<std::uint32_t> owners;
  if (shuffle_seed) {
    for (std::size_t i = 0; i < quotas_.size(); ++i)
      owners.insert(owners.end(), static_cast<std::size_t>(quotas_[i]), static_cast<std::uint32_t>(i));
    const auto key = runtime::philox_key(*shuffle_seed, runtime::RandomPurpose::sample_order);
    for (std::uint32_t i = round_places - 1; i > 0; --i) {
      const auto bits = runtime::philox(key, {i, ~0u, ~0u, ~0u});  // counters that no SampleOrder reaches
      std::swap(owners[i], owners[(std::uint64_t{bits[0]} * (i + 1)) >> 32]);
    }
  } else {
    std::vector<std::int64_t> given(quotas_.size());
    for (std::int64_t place = 1; place <= round_places; ++place) {
      const auto behind = [&](std::size_t i) { return quotas_[i] * place - given[i] * round_places; };
      std::size_t next = 0;
      for (std::size_t i = 1; i < quotas_.size(); ++i)
        if (behind(i) > behind(next)) next = i;
      ++given[next];
      owners.push_back(static_cast<std::uint32_t>(next));
    }
  }
  std::vector<std::int32_t> before(quotas_.size());
  for (const std::uint32_t owner : owners) places_.push_back({owner, before[owner]++});
}

MixedSource::Origin MixedSource::origin(std::int64_t n) const {
  const Turn& place = places_[static_cast<std::size_t>(n % round_places)];
  return {place.source, n / round_places * quotas_[place.source] + place.before};
}

std::vector<WeightedPath> parse_weighted_paths(const std::string& text) {
  std::vector<WeightedPath> paths;
  std::size_t weighted = 0;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    begin = end + 1;
    const std::size_t colon = part.rfind(':');
    double weight = 0;
    const char* const last = part.data() + part.size();
    const char* const number = colon == std::string::npos ? last : part.data() + colon + 1;
    const auto [stop, error] = std::from_chars(number, last, weight);
    const bool is_number = error == std::errc{} || error == std::errc::result_out_of_range;
    if (!is_number || stop != last) {
      paths.push_back({part});
      continue;
    }
    if (error == std::errc::result_out_of_range)
      fail(ErrorCode::usage, "`data` {}: weight {} of {} is out of range; use a number such as 0.7", text, number,
           part.substr(0, colon));
    ++weighted;
    paths.push_back({part.substr(0, colon), weight});
    if (!(weight > 0) || !std::isfinite(weight))
      fail(ErrorCode::usage, "`data` {}: weight {} of {} is not positive; use a number above 0", text, weight,
           paths.back().path);
  }
  if (weighted == 0) {
    std::error_code ignored;
    if (paths.size() > 1 && !fs::exists(text, ignored) && fs::exists(paths.front().path, ignored))
      fail(ErrorCode::usage, "`data` {}: file not found; to use several files, add a weight to each: {}:1,{}:1",
           text, paths[0].path, paths[1].path);
    return {{text}};
  }
  for (const auto& one : paths)
    if (one.path.empty())
      fail(ErrorCode::usage, "`data` {}: a weight has no file; use FILE:WEIGHT,FILE:WEIGHT", text);
  if (weighted < paths.size())
    fail(ErrorCode::usage, "`data` {}: some files have no weight; use FILE:WEIGHT,FILE:WEIGHT", text);
  return paths;
}

}  // namespace ranvier::models
