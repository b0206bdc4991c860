#include "runtime/machine/machine_profile.hpp"

#include "runtime/base/error.hpp"
#include "runtime/base/names.hpp"
#include "runtime/files/memory_map.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace ranvier::runtime {

namespace {

constexpr double longest_seconds = 1e9;  // limit against overflow of nanoseconds

using KindRates = std::array<WorkRate, work_kinds>;

constexpr std::size_t index_of(DType dtype) { return static_cast<std::size_t>(dtype); }
constexpr std::size_t index_of(WorkKind kind) { return static_cast<std::size_t>(kind); }

/// Rate of the kind in this type, or its substitute.
WorkRate rate_of(const std::map<DType, KindRates>& rates, DType dtype, WorkKind kind) {
  const WorkKind similar = kind == WorkKind::optimizer_int8 ? WorkKind::optimizer : kind;
  for (const WorkKind each : {kind, similar, WorkKind::elementwise}) {
    for (const DType other : {dtype, DType::f32, DType::bf16, DType::f16}) {
      const auto there = rates.find(other);
      if (there != rates.end() && there->second[index_of(each)] != WorkRate{}) return there->second[index_of(each)];
    }
  }
  return {};
}

std::array<double, 3> logarithms(const ProductShape& shape) {
  const auto log = [](std::size_t size) { return std::log2(static_cast<double>(std::max<std::size_t>(1, size))); };
  return {log(shape.m), log(shape.n), log(shape.k)};
}

using Terms = std::array<double, 4>;

/// Factors of the fitted terms of a matrix multiplication's time: arithmetic, and passes over C, A and B.
Terms amounts_of(const ProductShape& shape) {
  const auto m = static_cast<double>(shape.m), n = static_cast<double>(shape.n), k = static_cast<double>(shape.k);
  return {m * n * k, m * n, m * k, k * n};
}

double sum_of(const Terms& terms, const Terms& amounts) {
  double sum = 0;
  for (std::size_t i = 0; i < terms.size(); ++i) sum += terms[i] * amounts[i];
  return sum;
}

/// Solves for the terms of `used` (one bit each); all 0 if their matrix is nearly singular.
Terms solve(std::array<Terms, 4> matrix, Terms right, unsigned used) {
  Terms result{};
  constexpr double nothing = 1e-12;
  std::vector<std::size_t> rows;
  for (std::size_t i = 0; i < result.size(); ++i) {
    if ((used >> i & 1) != 0) rows.push_back(i);
  }
  for (const std::size_t i : rows) {
    if (matrix[i][i] < nothing) return {};
    for (const std::size_t j : rows) {
      if (j <= i) continue;
      const double times = matrix[j][i] / matrix[i][i];
      for (const std::size_t column : rows) matrix[j][column] -= times * matrix[i][column];
      right[j] -= times * right[i];
    }
  }
  for (auto i = rows.rbegin(); i != rows.rend(); ++i) {
    double rest = right[*i];
    for (const std::size_t j : rows) rest -= j > *i ? matrix[*i][j] * result[j] : 0;
    result[*i] = rest / matrix[*i][*i];
  }
  return result;
}

/// Best fit of non-negative terms: least squares of (fitted / measured - 1) over all subsets of terms that include
/// arithmetic.
Terms fit_terms(const std::vector<ProductRate>& products) {
  std::vector<Terms> amounts;  // relative to the measured time, in units of the mean
  Terms unit{};
  for (const ProductRate& product : products) {
    Terms& each = amounts.emplace_back(amounts_of(product.shape));
    const double seconds = 2 * each[0] / product.flops_per_second;
    for (std::size_t i = 0; i < each.size(); ++i)
      unit[i] += (each[i] /= seconds) / static_cast<double>(products.size());
  }
  std::array<Terms, 4> matrix{};
  Terms right{};
  for (Terms& each : amounts) {
    for (std::size_t i = 0; i < each.size(); ++i) {
      each[i] /= unit[i];
      right[i] += each[i];
    }
    for (std::size_t i = 0; i < each.size(); ++i) {
      for (std::size_t j = 0; j < each.size(); ++j) matrix[i][j] += each[i] * each[j];
    }
  }
  Terms best{};
  double least = std::numeric_limits<double>::max();
  for (unsigned used = 1; used < 16; used += 2) {
    Terms terms = solve(matrix, right, used);
    double squares = 0;
    for (const Terms& each : amounts) squares += std::pow(sum_of(terms, each) - 1, 2);
    const bool sensible =
        terms[0] > 0 && std::all_of(terms.begin(), terms.end(), [](double term) { return term >= 0; });
    if (!sensible || squares >= least) continue;
    least = squares;
    for (std::size_t i = 0; i < terms.size(); ++i) best[i] = terms[i] / unit[i];
  }
  return best;
}

std::string file_text(const std::filesystem::path& path, std::string_view source) {
  try {
    return std::string(MemoryMap(path).text());
  } catch (const Error& error) {
    fail(ErrorCode::usage, "{}: cannot read: {}", source, error.what());
  }
}

}  // namespace

MachineProfile read_machine_profile(const std::string& path_or_name) {
  const std::string source = "`profile` " + path_or_name;
  for (const ShippedProfile& shipped : all_shipped_profiles()) {
    if (shipped.name == path_or_name) return parse_machine_profile(shipped.json, source);
  }
  if (!std::filesystem::exists(path_or_name)) {
    const auto names = shipped_profiles();
    const auto nearest = nearest_name(path_or_name, names);
    fail(ErrorCode::usage, "{}: neither a file nor a shipped profile{}; use one of {}", source,
         nearest ? fmt::format(", perhaps {}", *nearest) : "", fmt::join(names, ", "));
  }
  return parse_machine_profile(file_text(path_or_name, source), source);
}

Links read_links(const std::filesystem::path& path) {
  const std::string source = fmt::format("`links` {}", path.string());
  return parse_links(file_text(path, source), source);
}

std::vector<std::string> shipped_profiles() {
  std::vector<std::string> names;
  for (const ShippedProfile& shipped : all_shipped_profiles()) names.emplace_back(shipped.name);
  std::sort(names.begin(), names.end());
  return names;
}

ProfileCosts::ProfileCosts(const MachineProfile& profile, Where where) : crowding_(profile.crowding) {
  const bool host = where == Where::host && profile.host_rates != KindRates{};
  const std::map<DType, KindRates> rates =
      host ? std::map<DType, KindRates>{{DType::f32, profile.host_rates}} : profile.rates;
  for (std::size_t dtype = 0; dtype < dtypes; ++dtype) {
    for (std::size_t kind = 0; kind < work_kinds; ++kind)
      rates_[dtype][kind] = rate_of(rates, static_cast<DType>(dtype), static_cast<WorkKind>(kind));
  }
  if (host) return;
  for (const auto& [dtype, products] : profile.products) {
    if (products.empty()) continue;
    Points& points = points_[index_of(dtype)];
    points.terms = fit_terms(products);
    for (const ProductRate& product : products) {
      const auto place = logarithms(product.shape);
      if (points.all.empty()) points.least = points.most = place;
      for (std::size_t i = 0; i < place.size(); ++i) {
        points.least[i] = std::min(points.least[i], place[i]);
        points.most[i] = std::max(points.most[i], place[i]);
      }
      const Terms amounts = amounts_of(product.shape);
      const double seconds = 2 * amounts[0] / product.flops_per_second;
      points.all.push_back({place, std::log(seconds / sum_of(points.terms, amounts))});
    }
  }
}

double ProfileCosts::product_seconds(std::size_t dtype, const ProductShape& shape) const {
  const auto [entry, is_new] = known_[dtype].try_emplace({shape.m, shape.n, shape.k}, 0.0);
  if (!is_new) return entry->second;
  const Points& points = points_[dtype];
  auto place = logarithms(shape);
  for (std::size_t i = 0; i < place.size(); ++i) place[i] = std::clamp(place[i], points.least[i], points.most[i]);
  constexpr double same = 1e-12;  // smallest distance⁴
  double sum = 0, weights = 0;
  for (const Point& point : points.all) {
    double square = 0;
    for (std::size_t i = 0; i < place.size(); ++i)
      square += (place[i] - point.place[i]) * (place[i] - point.place[i]);
    const double weight = 1 / std::max(square * square, same);
    sum += weight * point.off;
    weights += weight;
  }
  return entry->second = sum_of(points.terms, amounts_of(shape)) * std::exp(sum / weights);
}

double ProfileCosts::crowding(const WorkCost& cost) const {
  const double own = rates_[index_of(cost.dtype)][index_of(cost.kind)].crowding;
  return own > 0 ? own : crowding_;
}

Duration ProfileCosts::duration(const WorkCost& cost) const {
  const std::size_t dtype = index_of(cost.dtype);
  const WorkRate& rate = rates_[dtype][index_of(cost.kind)];
  double seconds = 0;
  if (cost.kind == WorkKind::product && !points_[dtype].all.empty() && cost.shape != ProductShape{}) {
    seconds = product_seconds(dtype, cost.shape);
  } else {
    if (rate.flops_per_second > 0) seconds = cost.flops / rate.flops_per_second;
    if (rate.bytes_per_second > 0) seconds = std::max(seconds, cost.bytes / rate.bytes_per_second);
  }
  seconds = std::min(seconds + rate.launch_seconds, longest_seconds);
  return Duration(std::llround(1e9 * seconds));
}

}  // namespace ranvier::runtime
