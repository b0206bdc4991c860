#include "apps/plan/search_space.hpp"

#include "actors/schedule/slice_balance.hpp"
#include "apps/options/flag_groups.hpp"
#include "collectives/plans/shard.hpp"
#include "runtime/base/arithmetic.hpp"
#include "runtime/base/grid.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

namespace ranvier::apps {

using actors::Policy;
using collectives::Scope;
using collectives::Sharding;

namespace {

constexpr int largest_microbatch = 64;

/// Key of a sharding's effect with these rows and groups: scopes of equal size have the same letter.
std::string meaning(const Sharding& sharding, int rows, int group_size) {
  const auto as = [&](Scope scope) {
    const int pieces = scope == Scope::none ? 1 : scope == Scope::group ? group_size : rows;
    return pieces == 1 ? 'N' : pieces == rows ? 'G' : 'I';
  };
  const bool second = sharding.secondary_parameters && group_size > 1 && group_size < rows;
  const std::string letters{as(sharding.parameters), as(sharding.gradients), as(sharding.optimizer)};
  const bool groups = second || letters.find('I') != std::string::npos;
  return fmt::format("{}{} {}", letters, second ? "+" : "", groups ? group_size : 0);
}

class Enumeration {
 public:
  explicit Enumeration(const SpaceOptions& options)
      : options_(&options), chunks_(given_number("chunks-per-rank").value_or(1)) {}

  SearchSpace run() {
    for (Candidate candidate : sharded_grids()) {
      const int rows = candidate.g_data;
      for (const std::string& offload : offloads())
        for (const std::string& secondary : secondary_tiers(candidate))
          for (const int microbatch : microbatch_sizes(options_->batch_size / rows))
            for (const std::string& recompute : free_or_given("recompute", {"off", "auto", "1"}))
              for (const std::string& policy : policies(candidate.g_inter, rows, microbatch))
                for (const std::string& algorithms : algorithm_names(rows)) {
                  candidate.offload = offload;
                  candidate.secondary_tier = secondary;
                  candidate.microbatch_size = microbatch;
                  candidate.recompute = recompute;
                  candidate.policy = policy;
                  candidate.algorithms = algorithms;
                  space_.candidates.push_back(candidate);
                }
    }
    if (space_.candidates.empty()) refuse();
    return std::move(space_);
  }

 private:
  [[nodiscard]] bool given(const std::string& flag) const { return options_->given.contains(flag); }
  [[nodiscard]] std::optional<int> given_number(const std::string& flag) const {
    const auto found = options_->given.find(flag);
    if (found == options_->given.end()) return {};
    int number = 0;
    if (whole(number, 0).read(found->second)) return {};  // "auto"
    return number;
  }
  /// Values of a flag to search; only "" if it is given.
  [[nodiscard]] std::vector<std::string> free_or_given(const std::string& flag,
                                                       std::vector<std::string> all) const {
    return given(flag) ? std::vector<std::string>{""} : std::move(all);
  }
  void leave_out(const std::string& why) { ++space_.left_out[why]; }

  /// Why a grid of `p` stages is not possible; empty if it is.
  [[nodiscard]] std::string obstacle(int p) const {
    const int world = options_->world;
    if (world % p != 0) return fmt::format("--g-inter does not divide {} ranks", world);
    if (chunks_ > 1 && p == 1) return fmt::format("--chunks-per-rank {} needs several stages", chunks_);
    if (chunks_ > 1 && p * chunks_ > options_->slices)
      return fmt::format("with --chunks-per-rank {} more model chunks than {} layers", chunks_, options_->slices);
    if (chunks_ == 1 && p > options_->layers) return fmt::format("more stages than {} layers", options_->layers);
    if (runtime::batch_problem(options_->batch_size, world / p))
      return fmt::format("--g-data does not divide --batch-size {}", options_->batch_size);
    return {};
  }

  /// Candidates with grid and sharding.
  std::vector<Candidate> sharded_grids() {
    std::vector<Candidate> all;
    const int world = options_->world;
    const auto stages = given_number("g-inter"), rows = given_number("g-data");
    for (int p = 1; p <= world; ++p) {
      if (stages && p != *stages) continue;
      if (rows && *rows != 0 && world % p == 0 && world / p != *rows) continue;
      if (const std::string why = obstacle(p); !why.empty()) {
        leave_out("grids: " + why);
      } else {
        add_shardings({.g_inter = p, .g_data = world / p}, all);
      }
    }
    return all;
  }

  /// Group sizes that divide a node or consist of complete nodes; or the given one.
  [[nodiscard]] std::vector<int> group_sizes(int rows) const {
    if (const auto given = given_number("group-size"); given && *given > 0) return {*given};
    const int on_node = std::min(rows, options_->node_size);
    std::vector<int> sizes;
    for (int size = 2; size < rows; ++size)
      if (rows % size == 0 && (on_node % size == 0 || size % on_node == 0)) sizes.push_back(size);
    return sizes;
  }

  void add_shardings(Candidate candidate, std::vector<Candidate>& all) {
    const int rows = candidate.g_data;
    if (given("shard") || rows == 1) return all.push_back(candidate);
    std::set<std::string> known;
    const std::vector<int> sizes = group_sizes(rows);
    for (const auto& [name, sharding] : collectives::named_shardings()) {
      const bool groups = sharding.parameters == Scope::group || sharding.gradients == Scope::group ||
                          sharding.optimizer == Scope::group || sharding.secondary_parameters;
      for (const int size : groups ? sizes : std::vector<int>{0}) {
        candidate.shard = name;
        candidate.group_size = given("group-size") ? 0 : size;
        if (known.insert(meaning(sharding, rows, size == 0 ? rows : size)).second) {
          all.push_back(candidate);
        } else {
          leave_out("shardings: identical to another sharding for these rows and groups");
        }
      }
    }
  }

  std::vector<std::string> offloads() {
    std::vector<std::string> names = free_or_given("offload", offload_names());
    std::erase_if(names, [&](const std::string& name) {
      const bool files = name == "infinity-nvme" && !options_->files;
      const bool shared = !name.empty() && name != "none" && name != "infinity-nvme" && !options_->apart;
      if (files) leave_out("--offload infinity-nvme: no --nvme, or no disk in the profile");
      if (shared) leave_out(fmt::format("--offload {}: device and host share one memory", name));
      return files || shared;
    });
    return names;
  }

  /// Tiers of the second copy of parameters, if there is one and the device has its own memory.
  [[nodiscard]] std::vector<std::string> secondary_tiers(const Candidate& candidate) const {
    const auto found = options_->given.find("shard");
    const std::string& name = found == options_->given.end() ? candidate.shard : found->second;
    const bool second = std::ranges::any_of(collectives::named_shardings(), [&](const auto& named) {
      return named.name == name && named.sharding.secondary_parameters;
    });
    if (!second || candidate.g_data == 1 || !options_->apart) return {""};
    return free_or_given("secondary-tier", {"same", "host"});
  }

  /// `row`: samples per step of a row.
  [[nodiscard]] std::set<int> microbatch_sizes(int row) const {
    if (const auto given = given_number("microbatch-size")) return {std::min(*given, row)};
    std::set<int> sizes;
    for (int size = 1; size <= std::min(row, largest_microbatch); size *= 2) sizes.insert(size);
    if (row <= largest_microbatch) sizes.insert(row);
    return sizes;
  }

  std::vector<std::string> policies(int stages, int rows, int microbatch) {
    if (stages == 1 || given("policy")) return {""};
    const int microbatches = runtime::ceil_divide(options_->batch_size / rows, microbatch);
    std::vector<std::string> names;
    for (const Policy policy : actors::all_policies) {
      if (chunks_ > 1 && policy == Policy::zb_h1) continue;
      if (chunks_ > 1 && policy == Policy::one_f_one_b && microbatches % stages != 0) {
        leave_out("policies: with --chunks-per-rank, 1f1b needs microbatches in multiples of --g-inter");
        continue;
      }
      names.emplace_back(to_string(policy));
    }
    return names;
  }

  std::vector<std::string> algorithm_names(int rows) {
    const bool all_given =
        std::ranges::all_of(algorithm_fields, [&](const auto& each) { return given(to_string(each.first)); });
    if (rows == 1 || all_given) return {""};
    std::vector<std::string> names{"auto"};
    if (options_->nccl) {
      // Predictions of other algorithms with NCCL do not model how they slow down other traffic.
      names.emplace_back("hierarchical");
      leave_out(
          "algorithms: with NCCL, only NCCL's algorithm and hierarchical are compared (all with --collectives "
          "plans)");
      return names;
    }
    for (const std::string& name : all_algorithm_names()) names.push_back(name);
    return names;
  }

  /// Fails because no grid is possible, with the most specific reason.
  [[noreturn]] void refuse() const {
    const int world = options_->world;
    const auto stages = given_number("g-inter"), rows = given_number("g-data");
    if (stages) static_cast<void>(runtime::complete_grid({*stages, rows.value_or(0)}, world, options_->start));
    if (stages || world == 1)
      actors::check_slices({.stages = stages.value_or(1), .chunks = chunks_},
                           static_cast<std::size_t>(options_->slices));
    std::vector<std::string> reasons;
    for (const auto& [why, count] : space_.left_out) reasons.push_back(fmt::format("{} ({})", why, count));
    reject(
        "no grid of {} ranks is possible: {}; use a --batch-size that is a multiple of {}, or another number of "
        "ranks",
        world, fmt::join(reasons, "; "), world);
  }

  const SpaceOptions* options_;
  int chunks_;  // per rank
  SearchSpace space_;
};

}  // namespace

bool is_default(const GivenFlag& flag) {
  static const std::vector<ResolvedOption> defaults = resolved(TrainOptions());
  if (flag.name == "prefetch") return flag.value == std::to_string(actors::TrainerOptions().prefetch);
  const PlanRole role = traits_of(flag.name).plan;
  if (role == PlanRole::sized || role == PlanRole::required) return false;
  return std::ranges::any_of(
      defaults, [&](const auto& option) { return option.name == flag.name && option.value == flag.value; });
}

std::vector<GivenFlag> Candidate::values() const {
  return {{"g-inter", std::to_string(g_inter)},
          {"g-data", std::to_string(g_data)},
          {"shard", shard},
          {"group-size", group_size > 0 ? std::to_string(group_size) : ""},
          {"offload", offload},
          {"secondary-tier", secondary_tier},
          {"optimizer-budget", optimizer_budget},
          {"microbatch-size", std::to_string(microbatch_size)},
          {"recompute", recompute},
          {"policy", policy},
          {"algorithms", algorithms}};
}

std::vector<GivenFlag> Candidate::flags() const {
  std::vector<GivenFlag> flags = values();
  flags.pop_back();
  // A collective without an algorithm of this name chooses its own.
  for (const auto& [collective, field] : algorithm_fields)
    flags.push_back(
        {to_string(collective), algorithms.empty() || has_algorithm(collective, algorithms) ? algorithms : "auto"});
  std::erase_if(flags, [](const GivenFlag& flag) { return flag.value.empty(); });
  return flags;
}

std::string Candidate::text() const {
  std::vector<std::string> words{fmt::format("{} × {}", g_inter, g_data)};
  if (!shard.empty()) words.push_back(group_size > 0 ? fmt::format("{} by {}", shard, group_size) : shard);
  if (!offload.empty() && offload != "none") words.push_back(offload);
  if (secondary_tier == "host") words.emplace_back("second copy on host");
  if (!optimizer_budget.empty()) words.push_back("budget " + optimizer_budget);
  words.push_back(fmt::format("{} per microbatch", microbatch_size));
  if (!recompute.empty() && recompute != "off") words.push_back("recompute " + recompute);
  if (!policy.empty()) words.push_back(policy);
  if (!algorithms.empty() && algorithms != "auto") words.push_back(algorithms);
  return fmt::format("{}", fmt::join(words, ", "));
}

SearchSpace make_space(const SpaceOptions& options) { return Enumeration(options).run(); }

}  // namespace ranvier::apps
