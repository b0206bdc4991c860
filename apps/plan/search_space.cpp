#include "apps/plan/search_space.hpp"

#include "actors/schedule/slice_balance.hpp"
#include "apps/options/flag_groups.hpp"
#include "collectives/plans/shard.hpp"
#include "runtime/base/arithmetic.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/grid.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <set>

namespace ranvier::apps {

using actors::Policy;
using collectives::Scope;
using collectives::Sharding;

namespace {

constexpr int largest_microbatch = 64;

/// A flag that candidates set.
struct SearchedFlag {
  std::string name;
  std::function<std::string(const Candidate&)>
      value;  ///< empty: the candidate keeps the given value or the default
  std::function<void(const Candidate&, TrainOptions&)> apply;
};

/// In the order of the help text.
std::vector<SearchedFlag> make_searched_flags() {
  std::vector<SearchedFlag> flags{
      {"g-inter", [](const Candidate& c) { return std::to_string(c.g_inter); },
       [](const Candidate& c, TrainOptions& o) { o.trainer.grid.g_inter = c.g_inter; }},
      {"g-data", [](const Candidate& c) { return std::to_string(c.g_data); },
       [](const Candidate& c, TrainOptions& o) { o.trainer.grid.g_data = c.g_data; }},
      {"shard", [](const Candidate& c) { return c.shard; },
       [](const Candidate& c, TrainOptions& o) { o.trainer.sharding = collectives::parse_sharding(c.shard); }},
      {"group-size", [](const Candidate& c) { return c.group_size > 0 ? std::to_string(c.group_size) : ""; },
       [](const Candidate& c, TrainOptions& o) { o.trainer.group_size = c.group_size; }},
      {"offload", [](const Candidate& c) { return c.offload; },
       [](const Candidate& c, TrainOptions& o) {
         expect(set_offload(o.trainer.tiers, o.offload, c.offload), "offload {}", c.offload);
       }},
      {"microbatch-size", [](const Candidate& c) { return std::to_string(c.microbatch_size); },
       [](const Candidate& c, TrainOptions& o) { o.trainer.microbatch_size = c.microbatch_size; }},
      {"recompute", [](const Candidate& c) { return c.recompute; },
       [](const Candidate& c, TrainOptions& o) {
         o.trainer.recompute = parse_whole(c.recompute, 1).value_or(0);
         o.trainer.recompute_auto = c.recompute == "auto";
       }},
      {"policy", [](const Candidate& c) { return c.policy; },
       [](const Candidate& c, TrainOptions& o) { o.trainer.policy = actors::policy_from(c.policy); }}};
  for (const auto& [collective, field] : algorithm_fields) {
    // A collective without an algorithm of this name chooses its own.
    const auto name = [of = collective](const Candidate& c) -> std::string {
      return c.algorithms.empty() || has_algorithm(of, c.algorithms) ? c.algorithms : "auto";
    };
    flags.push_back({to_string(collective), name, [name, field = field](const Candidate& c, TrainOptions& o) {
                       o.trainer.algorithms.*field = name(c);
                     }});
  }
  return flags;
}

const std::vector<SearchedFlag>& searched_flags() {
  static const std::vector<SearchedFlag> all = make_searched_flags();
  return all;
}

/// A sharding in groups of some rows.
struct Shares {
  std::string name;
  int group_size = 0;
};

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
    grids();
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
  void leave_out(const std::string& why) { ++space_.left_out[why]; }

  void grids() {
    const int world = options_->world;
    const auto stages = given_number("g-inter"), rows = given_number("g-data");
    for (int p = 1; p <= world; ++p) {
      if (stages && p != *stages) continue;
      if (world % p != 0) {
        leave_out(fmt::format("grids: --g-inter does not divide {} ranks", world));
        continue;
      }
      if (rows && *rows != 0 && world / p != *rows) continue;
      if (chunks_ > 1 && p == 1) {
        leave_out(fmt::format("grids: --chunks-per-rank {} needs several stages", chunks_));
        continue;
      }
      if (chunks_ > 1 && p * chunks_ > options_->slices) {
        leave_out(fmt::format("grids: with --chunks-per-rank {} more model chunks than {} layers", chunks_,
                              options_->slices));
        continue;
      }
      if (chunks_ == 1 && p > options_->layers) {
        leave_out(fmt::format("grids: more stages than {} layers", options_->layers));
        continue;
      }
      if (runtime::batch_problem(options_->batch_size, world / p)) {
        leave_out(fmt::format("grids: --g-data does not divide --batch-size {}", options_->batch_size));
        continue;
      }
      Candidate candidate;
      candidate.g_inter = p;
      candidate.g_data = world / p;
      shardings(candidate);
    }
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

  void shardings(Candidate candidate) {
    const int rows = candidate.g_data;
    if (given("shard") || rows == 1) {
      candidate.shard = "";
      offloads(candidate);
      return;
    }
    std::set<std::string> known;
    const std::vector<int> sizes = group_sizes(rows);
    for (const auto& [name, sharding] : collectives::named_shardings()) {
      const bool groups = sharding.parameters == Scope::group || sharding.gradients == Scope::group ||
                          sharding.optimizer == Scope::group || sharding.secondary_parameters;
      const auto add = [&](int group_size) {
        candidate.shard = name;
        candidate.group_size = given("group-size") ? 0 : group_size;
        if (!known.insert(meaning(sharding, rows, group_size == 0 ? rows : group_size)).second) {
          leave_out("shardings: identical to another sharding for these rows and groups");
          return;
        }
        offloads(candidate);
      };
      if (!groups) add(0);
      for (const int size : groups ? sizes : std::vector<int>()) add(size);
    }
  }

  void offloads(Candidate candidate) {
    std::vector<std::string> names = offload_names();
    if (given("offload")) names = {""};
    for (const std::string& name : names) {
      candidate.offload = name;
      if (name == "infinity-nvme" && !options_->files) {
        leave_out("--offload infinity-nvme: no --nvme, or no disk in the profile");
        continue;
      }
      if (!name.empty() && name != "none" && name != "infinity-nvme" && !options_->apart) {
        leave_out(fmt::format("--offload {}: device and host share one memory", name));
        continue;
      }
      microbatches(candidate);
    }
  }

  void microbatches(Candidate candidate) {
    const int row = options_->batch_size / candidate.g_data;
    std::set<int> sizes;
    for (int size = 1; size <= std::min(row, largest_microbatch); size *= 2) sizes.insert(size);
    if (row <= largest_microbatch) sizes.insert(row);
    if (const auto given = given_number("microbatch-size")) sizes = {std::min(*given, row)};
    for (const int size : sizes) {
      candidate.microbatch_size = size;
      recomputations(candidate);
    }
  }

  void recomputations(Candidate candidate) {
    std::vector<std::string> all{"off", "auto", "1"};
    if (given("recompute")) all = {""};
    for (const std::string& each : all) {
      candidate.recompute = each;
      policies(candidate);
    }
  }

  void policies(Candidate candidate) {
    if (candidate.g_inter == 1 || given("policy")) {
      candidate.policy = "";
      algorithms(candidate);
      return;
    }
    const int row = options_->batch_size / candidate.g_data;
    const int microbatches = runtime::ceil_divide(row, candidate.microbatch_size);
    for (const Policy policy : actors::all_policies) {
      if (chunks_ > 1 && policy == Policy::zb_h1) continue;
      if (chunks_ > 1 && policy == Policy::one_f_one_b && microbatches % candidate.g_inter != 0) {
        leave_out("policies: with --chunks-per-rank, 1f1b needs microbatches in multiples of --g-inter");
        continue;
      }
      candidate.policy = to_string(policy);
      algorithms(candidate);
    }
  }

  void algorithms(Candidate candidate) {
    std::vector<std::string> names{"auto"};
    const bool all_given =
        std::ranges::all_of(algorithm_fields, [&](const auto& each) { return given(to_string(each.first)); });
    if (candidate.g_data == 1 || all_given) {
      names = {""};
    } else if (options_->nccl) {
      // Predictions of other algorithms with NCCL do not model how they slow down other traffic.
      names.emplace_back("hierarchical");
      leave_out(
          "algorithms: with NCCL, only NCCL's algorithm and hierarchical are compared (all with --collectives "
          "plans)");
    } else {
      for (const auto& [collective, field] : algorithm_fields) {
        for (const auto& each : collectives::algorithms(collective)) {
          const std::string name(each.name);
          if (std::ranges::find(names, name) == names.end()) names.push_back(name);
        }
      }
    }
    for (const std::string& name : names) {
      candidate.algorithms = name;
      space_.candidates.push_back(candidate);
    }
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

void Candidate::apply(TrainOptions& options) const {
  for (const SearchedFlag& flag : searched_flags()) {
    const bool stays = options.is_given(flag.name) && traits_of(flag.name).plan != PlanRole::sized;
    if (!stays && !flag.value(*this).empty()) flag.apply(*this, options);
  }
  if (!may_have_files()) options.trainer.tiers.files.directories.clear();
  options.given.emplace_back("microbatch-size");  // resolve() keeps the value
}

std::vector<GivenFlag> Candidate::flags() const {
  std::vector<GivenFlag> all;
  for (const SearchedFlag& flag : searched_flags())
    if (const std::string value = flag.value(*this); !value.empty()) all.push_back({flag.name, value});
  return all;
}

std::string Candidate::text() const {
  std::vector<std::string> words{fmt::format("{} × {}", g_inter, g_data)};
  if (!shard.empty()) words.push_back(group_size > 0 ? fmt::format("{} by {}", shard, group_size) : shard);
  if (!offload.empty() && offload != "none") words.push_back(offload);
  words.push_back(fmt::format("{} per microbatch", microbatch_size));
  if (!recompute.empty() && recompute != "off") words.push_back("recompute " + recompute);
  if (!policy.empty()) words.push_back(policy);
  if (!algorithms.empty() && algorithms != "auto") words.push_back(algorithms);
  return fmt::format("{}", fmt::join(words, ", "));
}

SearchSpace make_space(const SpaceOptions& options) { return Enumeration(options).run(); }

}  // namespace ranvier::apps
