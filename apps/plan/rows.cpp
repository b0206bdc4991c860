#include "apps/plan/rows.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <tuple>
#include <utility>

namespace ranvier::apps {

namespace {

bool differ_in_one_flag(const Candidate& a, const Candidate& b) {
  const auto plan_of = [](const Candidate& c) { return std::tie(c.g_inter, c.g_data, c.shard); };
  if (plan_of(a) != plan_of(b)) return false;  // grids and shardings make different plans
  const std::vector<GivenFlag> of_a = a.values(), of_b = b.values();
  int differing = 0;
  for (std::size_t v = 0; v < of_a.size(); ++v) differing += of_a[v] == of_b[v] ? 0 : 1;
  return differing == 1;
}

std::size_t flags_beside_defaults(const Candidate& candidate) {
  const std::vector<GivenFlag> flags = candidate.flags();
  return static_cast<std::size_t>(
      std::ranges::count_if(flags, [](const GivenFlag& flag) { return !is_default(flag); }));
}

}  // namespace

std::vector<PlanRow> rows_of(std::span<const Candidate> candidates, std::span<const SearchResult::Found> found,
                             std::size_t most) {
  const auto candidate_of = [&](std::size_t number) -> const Candidate& {
    return candidates[found[number].candidate];
  };
  std::vector<PlanRow> rows;
  for (std::size_t n = 0; n < found.size(); ++n) {
    const double seconds = found[n].seconds;
    if (rows.size() >= most && seconds > (1 + row_tolerance) * rows[most - 1].seconds) break;
    const auto joins = [&](const PlanRow& row) {
      return seconds <= (1 + row_tolerance) * row.seconds &&
             std::ranges::any_of(row.members, [&](std::size_t member) {
               return differ_in_one_flag(candidate_of(n), candidate_of(member));
             });
    };
    const auto first = std::ranges::find_if(rows, joins);
    if (first == rows.end()) {
      rows.push_back({{n}, seconds});
      continue;
    }
    first->members.push_back(n);
    auto other = first + 1;
    while ((other = std::find_if(other, rows.end(), joins)) != rows.end()) {
      first->members.insert(first->members.end(), other->members.begin(), other->members.end());
      other = rows.erase(other);
    }
  }
  rows.resize(std::min(rows.size(), most));
  for (PlanRow& row : rows) {
    std::ranges::sort(row.members);
    const auto simplest = std::ranges::min_element(row.members, [&](std::size_t a, std::size_t b) {
      return std::pair(flags_beside_defaults(candidate_of(a)), a) <
             std::pair(flags_beside_defaults(candidate_of(b)), b);
    });
    std::rotate(row.members.begin(), simplest, simplest + 1);
  }
  return rows;
}

double rows_limit(std::span<const Candidate> candidates, std::span<const SearchResult::Found> found,
                  std::size_t most) {
  const std::vector<PlanRow> rows = rows_of(candidates, found, most);
  return rows.size() < most ? std::numeric_limits<double>::infinity() : (1 + row_tolerance) * rows.back().seconds;
}

std::string switches_text(std::span<const Candidate> alternatives) {
  std::vector<std::string> texts;
  const std::vector<GivenFlag> first = alternatives.front().values();
  for (std::size_t v = 0; v < first.size(); ++v) {
    std::vector<std::string> values;
    for (const Candidate& candidate : alternatives) {
      std::string value = candidate.values()[v].value;
      if (std::ranges::find(values, value) == values.end()) values.push_back(std::move(value));
    }
    const bool is_flag = first[v].name != "algorithms";
    if (values.size() > 1)
      texts.push_back(fmt::format("{}{} {}", is_flag ? "--" : "", first[v].name, fmt::join(values, "|")));
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

}  // namespace ranvier::apps
