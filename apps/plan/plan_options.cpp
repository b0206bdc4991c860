#include "apps/plan/plan_options.hpp"

#include "runtime/host/cores.hpp"
#include "runtime/machine/machine_profile.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>

namespace ranvier::apps {

namespace {

OptionBinding repeated(OptionBinding binding) {
  binding.repeats = true;
  return binding;
}

OptionBinding factors(std::vector<double>& field, const char* valid) {
  return repeated(list<double>(field, valid, [](const std::string& text) {
    double factor = 0;
    return !real(factor, 0, 1e6).read(text) && factor > 0 ? std::optional(factor) : std::nullopt;
  }));
}

/// Reads A of "A:F" by `first`, and F, a factor of 1 or more.
bool read_slow(const std::string& text, const OptionBinding& first, double& factor) {
  const std::size_t colon = text.find(':');
  return colon != std::string::npos && !first.read(text.substr(0, colon)) &&
         !real(factor, 1, 1e6).read(text.substr(colon + 1));
}

OptionBinding names(std::vector<std::string>& field) {
  return repeated(list<std::string>(
      field, "comma-separated names or paths",
      [](const std::string& name) { return name.empty() ? std::nullopt : std::optional(name); }, std::identity(),
      runtime::shipped_profiles()));
}

OptionBinding slow_nodes(std::vector<SlowNode>& field) {
  return repeated(list<SlowNode>(
      field, "a node and a factor of 1 or more, such as 3:1.5",
      [](const std::string& text) {
        SlowNode slow;
        return read_slow(text, whole(slow.node, 0), slow.factor) ? std::optional(slow) : std::nullopt;
      },
      [](const SlowNode& slow) { return fmt::format("{}:{}", slow.node, slow.factor); }));
}

OptionBinding slow_shares(std::vector<SlowShare>& field) {
  return repeated(list<SlowShare>(
      field, "a fraction above 0, at most 1, and a factor of 1 or more, such as 0.1:1.5",
      [](const std::string& text) {
        SlowShare slow;
        const bool valid = read_slow(text, real(slow.share, 0, 1), slow.factor) && slow.share > 0;
        return valid ? std::optional(slow) : std::nullopt;
      },
      [](const SlowShare& slow) { return fmt::format("{}:{}", slow.share, slow.factor); }));
}

OptionBinding counts(std::vector<int>& field, const char* valid) {
  return repeated(list<int>(field, valid, [](const std::string& text) { return parse_whole(text, 1, 1 << 20); }));
}

OptionBinding rank_numbers(std::vector<int>& field) {
  static constexpr const char* valid = "increasing numbers of ranks, such as 8,16,32";
  return only_if(counts(field, valid), field, valid, [](const std::vector<int>& numbers) {
    return std::ranges::adjacent_find(numbers, std::greater_equal()) == numbers.end();
  });
}

OptionTable declare(PlanOptions& options) {
  constexpr const char* some_factors = "factors above 0, such as 2 or 0.5,2";
  OptionTable table;
  table.concern("Machines");
  table.add(
      {"profile", "NAME|FILE",
       "Machine profile: the name of a shipped profile, or a file of ranvier-bench profile; several are compared",
       names(options.profiles), "RANVIER_PROFILE, or the file that ranvier-bench profile left for this host"});
  table.add({"price", "X", "Price per device and hour, for the cost of a million tokens", real(options.price, 0),
             "the profile's"});
  table.concern("What if");
  table.add({"bandwidth-times", "X[,X]", "Multiply the bandwidth of links by X",
             factors(options.bandwidth_times, some_factors), "none"});
  table.add({"memory-times", "X[,X]", "Multiply the memory of devices by X",
             factors(options.memory_times, some_factors), "none"});
  table.add({"slow-node", "N:F", "Slow node N down: computation and messages take F times as long",
             slow_nodes(options.slow_nodes), "none"});
  table.add({"slow-ranks", "FRACTION:F",
             "Slow down this fraction of the ranks, chosen at random: computation takes F times as long",
             slow_shares(options.slow_ranks), "none"});
  table.add({"slow-links", "FRACTION:F",
             "Slow down the links of this fraction of the nodes, chosen at random: a byte takes F times as long",
             slow_shares(options.slow_links), "none"});
  table.add({"jitter", "X[,X]",
             "Vary the durations of all work on devices and hosts, not of messages and files; X is standard "
             "deviation divided by mean",
             factors(options.jitter, "numbers above 0, such as 0.1 or 0.05,0.2"), "none"});
  table.add({"no-overlap", "", "Assume that GPUs compute nothing during an NCCL collective",
             switch_on(options.no_overlap)});
  table.add({"dead-ranks", "N[,N]", "Remove N ranks, chosen at random, with their nodes, and plan for the others",
             counts(options.dead_ranks, "numbers above 0, such as 1,8"), "none"});
  table.add({"draw", "N", "Random seed for --slow-ranks, --slow-links, --jitter and --dead-ranks",
             whole(options.draw, 0)});
  table.add({"scale", "N[,N]",
             "Find the best plan and the bottleneck for each of these numbers of ranks (instead of --world)",
             rank_numbers(options.scale), "none"});
  table.concern("Search");
  table.add({"best", "N",
             "Number of plans to show; plans that differ in one flag and take the same time share a row",
             whole(options.best, 1, 1000)});
  table.add({"simulations", "N",
             "Largest number of simulations per search, most promising first; 0: simulate until no remaining plan "
             "can be better. With --scale the default is 8",
             whole(options.simulations, 0)});
  table.add(
      {"exhaustive", "",
       "Simulate every candidate that fits, even if its lower bound on step time rules it out of the printed plans",
       switch_on(options.exhaustive)});
  table.add(
      {"no-simulation", "",
       "Rank plans by estimates, without simulation: exact memory, rough times, seconds for thousands of ranks",
       switch_on(options.no_simulation)});
  table.add({"rows", "all|distinct|auto",
             "Rows to simulate: all; distinct: one row per kind, with small errors if equal rows use different "
             "nodes; auto: distinct from 256 ranks on; without NCCL, all rows are simulated",
             choice<std::optional<bool>>(options.all_rows,
                                         {{"all", true}, {"distinct", false}, {"auto", std::nullopt}})});
  table.add({"jobs", "N", "Number of concurrent simulations; 0: one per core", whole(options.jobs, 0, 1024)});
  table.concern("Output");
  table.add({"write-config", "FILE", "Write the best plan for ranvier-train --config", text(options.write_config),
             "none"});
  table.add({"write-trace", "FILE",
             "Write the simulated steps of the best plan for Perfetto, Chrome or ranvier-report --timeline; the "
             "second scenario goes to FILE with .2 before .json, and so on",
             text(options.write_trace), "none"});
  table.add({"json", "", "Print JSON instead of tables", switch_on(options.json)});
  table.add({"plot", "FILE.svg", "Write a plot of the tables", text(options.plot), "none"});
  table.add({"overwrite", "", "Replace existing files of --write-config, --write-trace and --plot",
             switch_on(options.overwrite)});
  declare_info(table, options.info);
  return table;
}

constexpr int simulations_of_scale = 8;  // one simulation of thousands of ranks takes a minute or more

void check_scale(const PlanOptions& options) {
  const auto refuse = [&](const char* flag) {
    reject("--scale {} cannot be combined with {}; remove one of the two", fmt::join(options.scale, ","), flag);
  };
  if (value_of(options.train, "world") != nullptr) refuse("--world");
  if (!options.write_config.empty()) refuse("--write-config");
  if (!options.write_trace.empty()) refuse("--write-trace");
  if (options.compares()) refuse("several scenarios");
}

/// Refuses flags that need simulations.
void check_no_simulation(const PlanOptions& options, bool simulations) {
  const char* const flag = simulations                    ? "--simulations"
                           : options.exhaustive           ? "--exhaustive"
                           : !options.scale.empty()       ? "--scale"
                           : !options.write_trace.empty() ? "--write-trace"
                           : options.compares()           ? "several scenarios"
                                                          : nullptr;
  if (flag != nullptr) reject("--no-simulation cannot be combined with {}; remove one of the two", flag);
}

}  // namespace

PlanOptions parse_plan_options(int argc, const char* const* argv) {
  PlanOptions options;
  OptionTable table = declare(options);
  AskedOptions asked = default_options();
  TrainTable train = declare_train(asked);
  std::string device;
  train.rebind("device", text(device));  // this build may lack the device, which planning does not need
  table.also_reads(train, "ranvier-train", [&options] { return options.info.any(); });
  table.parse(argc, argv);
  if (options.info.any()) return options;
  options.train = train.given_flags();
  if (options.exhaustive && table.given("simulations"))
    reject("--exhaustive cannot be combined with --simulations {}; remove one of the flags", options.simulations);
  if (options.no_simulation) check_no_simulation(options, table.given("simulations"));
  if (!options.scale.empty()) check_scale(options);
  if (!options.scale.empty() && !table.given("simulations")) options.simulations = simulations_of_scale;
  if (options.exhaustive || options.no_simulation) options.simulations = 0;
  if (options.jobs == 0) options.jobs = runtime::available_cores();
  return options;
}

ProfileSubject subject_of(const std::vector<GivenFlag>& flags, int threads) {
  const std::string* const device = value_of(flags, "device");
  const std::string* const given = value_of(flags, "threads");
  return {.gpu = device != nullptr && device->starts_with("cuda"),
          .threads = given == nullptr ? threads : parse_whole(*given, 1).value_or(threads)};
}

std::string add_found_profile(PlanOptions& options, const ProfileSearchPath& places) {
  if (std::ranges::find(options.profiles, no_profile) != options.profiles.end())
    reject("--profile {}: ranvier-plan needs a profile; use a name or a file of ranvier-bench profile", no_profile);
  if (!options.profiles.empty()) return {};
  const auto found = find_profile(places, subject_of(options.train, 0));
  if (!found)
    reject("--profile is missing; use one of {}, or run ranvier-bench profile, which saves a profile of this host",
           fmt::join(runtime::shipped_profiles(), ", "));
  options.profiles = {*found};
  return *found;
}

Manual plan_manual() {
  PlanOptions options;
  std::vector<std::string> searched;
  for (const ResolvedOption& option : default_flags())
    if (const PlanRole role = traits_of(option.name).plan; role == PlanRole::searched || role == PlanRole::sized)
      searched.push_back("--" + option.name);
  return {
      .program = "ranvier-plan",
      .summary = "predicts the step time of ranvier-train on the machines of a profile, and chooses its flags",
      .forms = {{"ranvier-plan --model gpt-7b --precision bf16 --world 64 --node-size 8 --batch-size 512 "
                 "--profile NAME",
                 ""}},
      .about = fmt::format("All flags of ranvier-train work here, too. Given flags keep their values. The search "
                           "chooses the others: {}. --world and --batch-size are required.",
                           fmt::join(searched, ", ")),
      .status_1 = "nothing fits",
      .options = declare(options).facts(),
      .others = train_manual("ranvier-train").options};
}

}  // namespace ranvier::apps
