#include "apps/plan/rows.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <limits>
#include <tuple>
#include <utility>

namespace ranvier::apps {

namespace {

/// Property of a candidate that one flag sets; grids and shardings make different plans.
struct Switch {
  const char* name;
  std::string (*value)(const Candidate&);
};
constexpr std::array switches{
    Switch{"--group-size", [](const Candidate& c) { return std::to_string(c.group_size); }},
    Switch{"--offload", [](const Candidate& c) { return c.offload; }},
    Switch{"--microbatch-size", [](const Candidate& c) { return std::to_string(c.microbatch_size); }},
    Switch{"--recompute", [](const Candidate& c) { return c.recompute; }},
    Switch{"--policy", [](const Candidate& c) { return c.policy; }},
    Switch{"algorithms", [](const Candidate& c) { return c.algorithms; }}};

bool differ_in_one_flag(const Candidate& a, const Candidate& b) {
  const auto plan_of = [](const Candidate& c) { return std::tie(c.g_inter, c.g_data, c.shard); };
  if (plan_of(a) != plan_of(b)) return false;
  return std::ranges::count_if(switches, [&](const Switch& each) { return each.value(a) != each.value(b); }) == 1;
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
  for (const Switch& each : switches) {
    std::vector<std::string> values;
    for (const Candidate& candidate : alternatives) {
      std::string value = each.value(candidate);
      if (std::ranges::find(values, value) == values.end()) values.push_back(std::move(value));
    }
    if (values.size() > 1) texts.push_back(fmt::format("{} {}", each.name, fmt::join(values, "|")));
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

}  // namespace ranvier::apps
