#include "apps/plan/plan_run.hpp"

#include "apps/plan/plan_report.hpp"
#include "apps/plan/scaling.hpp"
#include "collectives/links.hpp"
#include "runtime/atomic_file.hpp"
#include "runtime/error.hpp"

#include <boost/json/array.hpp>
#include <boost/json/serialize.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace ranvier::apps {

using runtime::MachineProfile;

namespace {

namespace json = boost::json;

constexpr int nothing_fits_exit_code = 1;  // an answer, not a failure

/// One of the situations that are compared.
struct Situation {
  std::string label;
  MachineProfile profile;
  std::optional<SlowNode> slow;
};

void multiply(runtime::Link& link, double times) {
  link.bytes_per_second *= times;
  link.node_bytes_per_second *= times;
}

std::vector<Situation> situations_of(const PlanOptions& options, const PlanTools& tools) {
  std::vector<Situation> all;
  for (const std::string& name : options.profiles) {
    MachineProfile profile = tools.read_profile(name);
    std::string label = profile.name.empty() ? name : profile.name;
    all.push_back({std::move(label), std::move(profile), {}});
  }
  const MachineProfile& base = all.front().profile;
  std::vector<Situation> more;
  for (const double times : options.bandwidth_times) {
    Situation& one = more.emplace_back(fmt::format("bandwidth × {}", times), base, std::nullopt);
    multiply(one.profile.links.intra_node, times);
    multiply(one.profile.links.inter_node, times);
  }
  for (const double times : options.memory_times) {
    Situation& one = more.emplace_back(fmt::format("memory × {}", times), base, std::nullopt);
    std::size_t& memory = base.gpu ? one.profile.device_memory : one.profile.host_memory;
    memory = static_cast<std::size_t>(static_cast<double>(memory) * times);
    if (!base.gpu && one.profile.device_memory > 0)
      one.profile.device_memory = static_cast<std::size_t>(static_cast<double>(one.profile.device_memory) * times);
  }
  for (const SlowNode& slow : options.slow_nodes)
    more.push_back({fmt::format("node {} × {} as slow", slow.node, slow.factor), base, slow});
  for (Situation& one : more) all.push_back(std::move(one));
  return all;
}

actors::Disturbances disturbances_of(const Situation& situation, const Planner& planner) {
  actors::Disturbances all;
  if (!situation.slow) return all;
  const auto [node, factor] = *situation.slow;
  const int nodes = (planner.world() + planner.node_size() - 1) / planner.node_size();
  if (node >= nodes)
    fail(ErrorCode::usage, "--slow-node {}:{}: there are {} nodes of {} ranks: give one from 0 to {}", node, factor,
         nodes, planner.node_size(), nodes - 1);
  all.slow_nodes.assign(static_cast<std::size_t>(nodes), 1.0);
  all.slow_nodes[static_cast<std::size_t>(node)] = factor;
  for (int rank = 0; rank < planner.world(); ++rank)
    all.slow_ranks.push_back(rank / planner.node_size() == node ? factor : 1.0);
  return all;
}

ReportContext context_of(const PlanOptions& options, const Planner& planner) {
  const MachineProfile& profile = planner.profile();
  return {.profile = &profile,
          .world = planner.world(),
          .batch_size = planner.batch_size(),
          .price_per_hour = options.price > 0 ? options.price : profile.price_per_hour,
          .item = planner.job().item};
}

void write(const std::string& path, const std::string& text) {
  runtime::AtomicFile file(path);
  file.append(text.data(), text.size());
  file.commit();
}

/// The choice of algorithms goes by the profile's links, and ranvier-train's has to do so, too.
void write_config(const std::string& path, Choice& best, const Planner& planner, const ReportContext& context) {
  const bool by_links = best.candidate.g_data > 1 && !planner.is_given("links");
  if (by_links) {
    const std::string links = path + ".links.json";
    write(links, collectives::to_json(planner.profile().links));
    best.config.push_back({"links", links});
  }
  write(path, config_text(best, context));
}

PlanResult run_scale(const PlanOptions& options, const PlanTools& tools, SearchLimits limits) {
  const MachineProfile profile = tools.read_profile(options.profiles.front());
  const auto costs = tools.costs(profile);
  limits.best = 1;
  std::vector<ScalingPoint> points;
  for (const int world : options.scale) {
    std::vector<GivenFlag> flags = options.train;
    flags.push_back({"world", std::to_string(world)});
    points.push_back(scaling_point(flags, profile, options.price > 0 ? options.price : profile.price_per_hour,
                                   *costs, tools.predict, limits));
  }
  if (!options.plot.empty()) write(options.plot, svg(scaling_plot(points)));
  const bool any =
      std::any_of(points.begin(), points.end(), [](const auto& point) { return point.best.has_value(); });
  return {.status = any ? 0 : nothing_fits_exit_code,
          .text = options.json ? json::serialize(json::object{{"scale", to_json(points)}}) + '\n'
                               : scaling_table(points)};
}

}  // namespace

PlanResult run_plan(const PlanOptions& options, const PlanTools& tools) {
  for (const auto& [path, flag] :
       {std::pair{options.write_config, "--write-config"}, std::pair{options.plot, "--plot"}})
    if (!path.empty()) runtime::check_writable(path, flag);
  const SearchLimits limits{.best = static_cast<std::size_t>(options.best),
                            .simulations = static_cast<std::size_t>(options.simulations),
                            .threads = options.jobs,
                            .exhaustive = options.exhaustive};
  if (!options.scale.empty()) return run_scale(options, tools, limits);
  const std::vector<Situation> situations = situations_of(options, tools);
  PlanResult result;
  json::object report;
  json::array cases_json;
  std::vector<Case> cases;
  std::optional<Candidate> first_best;
  for (const Situation& situation : situations) {
    const Planner planner(options.train, situation.profile);
    const ReportContext context = context_of(options, planner);
    const actors::Disturbances disturbances = disturbances_of(situation, planner);
    const auto costs = tools.costs(situation.profile);
    const bool is_first = &situation == &situations.front();
    Choices choices = choose(planner, *costs, tools.predict, limits, disturbances);
    if (is_first) {
      if (choices.best.empty()) {
        result.status = nothing_fits_exit_code;
        result.text += search_lines(choices) + '\n' + nothing_fits(choices, context);
      } else {
        first_best = choices.best.front().candidate;
        result.text += search_lines(choices) + '\n' + choices_table(choices, context);
      }
      report = to_json(choices, context);
      if (!options.plot.empty() && !options.compares()) write(options.plot, svg(choices_plot(choices, context)));
      if (!options.write_config.empty() && first_best) {
        write_config(options.write_config, choices.best.front(), planner, context);
        result.text += fmt::format("\nwritten: {}, for mpirun -n {} ranvier-train --config {} --data …\n",
                                   options.write_config, planner.world(), options.write_config);
      }
    }
    if (!options.compares()) break;
    Case& one = cases.emplace_back();
    one.label = situation.label;
    one.context = context;
    if (first_best) one.kept = predict_one(planner, tools.predict, *first_best, disturbances);
    if (!choices.best.empty()) one.best = std::move(choices.best.front());
    cases_json.push_back(to_json(one));
    if (&situation != &situations.back()) continue;
    result.text += '\n' + cases_table(cases);
    report["what_if"] = std::move(cases_json);
    if (!options.plot.empty()) write(options.plot, svg(cases_plot(cases)));
  }
  if (options.json) result.text = json::serialize(report) + '\n';
  return result;
}

}  // namespace ranvier::apps
