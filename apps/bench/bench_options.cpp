#include "apps/bench/bench_options.hpp"

#include "apps/options/flag_groups.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <string_view>

namespace ranvier::apps {

namespace {

using collectives::Collective;

constexpr const char* by_mpi = "mpi";

bool has(Collective collective, std::string_view name) { return name == by_mpi || has_algorithm(collective, name); }

/// Every algorithm of some collective, and MPI.
std::vector<std::string> known_algorithms() {
  std::vector<std::string> names = all_algorithm_names();
  names.emplace_back(by_mpi);
  return names;
}

OptionBinding collective_names(std::vector<Collective>& field) {
  return list<Collective>(
      field, "some of all-gather, reduce-scatter, all-reduce, separated by commas",
      [](const std::string& text) -> std::optional<Collective> {
        for (const auto& [collective, algorithm] : algorithm_fields)
          if (text == to_string(collective)) return collective;
        return {};
      },
      [](Collective collective) { return std::string(to_string(collective)); },
      {"all-gather", "reduce-scatter", "all-reduce"});
}

OptionBinding algorithm_names(std::vector<std::string>& field) {
  const std::vector<std::string> known = known_algorithms();
  return list<std::string>(
      field, fmt::format("some of {}, separated by commas", fmt::join(known, ", ")),
      [known](const std::string& text) {
        const bool is_known = std::ranges::find(known, text) != known.end();
        return is_known ? std::optional(text) : std::nullopt;
      },
      std::identity(), known);
}

OptionBinding sizes(std::vector<std::size_t>& field) {
  return list<std::size_t>(
      field, "sizes such as 64KiB or 16MiB, separated by commas",
      [](const std::string& text) {
        const auto bytes = parse_bytes(text);
        return bytes && *bytes > 0 ? bytes : std::nullopt;
      },
      bytes_text);
}

OptionBinding folders(std::vector<std::filesystem::path>& field) {
  return list<std::filesystem::path>(
      field, "directories, separated by commas",
      [](const std::string& path) {
        return path.empty() ? std::nullopt : std::optional<std::filesystem::path>(path);
      },
      [](const std::filesystem::path& path) { return path.string(); });
}

OptionTable declare(BenchOptions& options) {
  OptionTable table;
  table.rest(options.words);
  table.concern("Links");
  table.add({"write-links", "FILE", "Measure the links between ranks and write a file for ranvier-train --links",
             text(options.write_links)});
  table.add({"node-size", "N", "Ranks per node, as if rank r were on node r / N; 0 asks MPI",
             whole(options.node_size, 0)});
  table.concern("Collectives");
  table.add({"collectives", "LIST", "Collectives to time, in fp32: all-gather,reduce-scatter,all-reduce",
             collective_names(options.collectives), "none"});
  table.add({"algorithms", "LIST", fmt::format("Algorithms to time: {}", fmt::join(known_algorithms(), ",")),
             algorithm_names(options.algorithms), "all"});
  table.add({"sizes", "LIST", "Sizes of the complete buffer in bytes", sizes(options.sizes)});
  table.add({"chunk-size", "SIZE", "Size of a collective chunk: bytes that a plan moves at a time",
             bytes(options.chunk_bytes)});
  table.add({"depth", "N", "Number of chunks in flight", whole(options.depth, 1)});
  table.add({"repeat", "N", "Number of repetitions; the median is reported", whole(options.repeat, 1)});
  table.add({"links", "FILE", "Links file for predicted durations", text(options.links),
             "the links that --write-links measures, or none"});
  table.concern("Profile");
  table.add(
      {"write-profile", "FILE",
       "File for the profile; - prints to stdout. The default is a file per host, device kind and threads in "
       "$XDG_DATA_HOME/ranvier/profiles (~/.local/share/ranvier/profiles), read by ranvier-train and ranvier-plan",
       text(options.write_profile), "that file"});
  table.add({"name", "TEXT", "Name of the profile", text(options.profile_name), "the device's"});
  table.add({"threads", "N",
             "Threads per rank on a CPU; 0: the available cores, divided among the ranks of the node",
             whole(options.threads, 0)});
  table.add({"nvme", "DIR[,DIR]", "Directories whose disks are measured as well, one per disk",
             folders(options.nvme), "none"});
  table.concern("Run");
  table.add({"device", "NAME", "Memory to send from and to: cpu; cuda: the GPUs of a node in turn; cuda:N: GPU N",
             device_flag(options.device, options.gpu)});
  table.add({"seconds", "S", "Start no further measurement after this many seconds", real(options.seconds, 0.1)});
  table.add({"overwrite", "", "Replace existing files of --write-links and --write-profile",
             switch_on(options.overwrite)});
  declare_info(table, options.info);
  return table;
}

/// Refuses flags of profiles without `profile`, and flags of links and collectives with it.
void check_profile(const BenchOptions& options, const OptionTable& table) {
  if (options.profiles() && options.words != std::vector<std::string>{"profile"}) {
    reject(
        "unknown command: '{}'; the only command is 'profile'; without a command, ranvier-bench measures links "
        "and collectives",
        fmt::join(options.words, " "));
  }
  if (options.profiles()) {
    for (const char* flag : {"write-links", "links", "collectives"}) {
      if (!table.given(flag)) continue;
      reject("--{0} does not apply to ranvier-bench profile, which always measures links; remove --{0}", flag);
    }
    if (options.threads > 0 && options.device == DeviceFlag::cuda)
      reject("--threads {} applies to CPUs, but --device is cuda; remove --threads", options.threads);
  } else {
    for (const char* flag : {"write-profile", "name", "threads", "nvme"}) {
      if (!table.given(flag)) continue;
      reject("--{} applies to profiles only; use ranvier-bench profile --{}", flag, flag);
    }
  }
}

}  // namespace

std::vector<std::string> BenchOptions::algorithms_of(Collective collective) const {
  std::vector<std::string> names;
  for (const std::string& name : algorithms.empty() ? known_algorithms() : algorithms) {
    if (has(collective, name) && (name != by_mpi || device != DeviceFlag::cuda)) names.push_back(name);
  }
  return names;
}

BenchOptions parse_bench_options(int argc, const char* const* argv) {
  BenchOptions options;
  OptionTable table = declare(options);
  table.parse(argc, argv);
  if (options.info.any()) return options;
  check_profile(options, table);
  for (const char* flag : {"algorithms", "sizes", "chunk-size", "depth", "repeat", "links"}) {
    if (!table.given(flag) || !options.collectives.empty()) continue;
    reject("--{} has no effect without collectives; add --collectives all-gather", flag);
  }
  const auto named_mpi = std::ranges::find(options.algorithms, by_mpi);
  if (options.device == DeviceFlag::cuda && named_mpi != options.algorithms.end()) {
    reject(
        "--algorithms mpi needs memory that the host can access and cannot be combined with --device cuda; remove "
        "one of the flags");
  }
  if (options.device == DeviceFlag::inline_) {
    reject(
        "--device inline is not supported, since its computation overlaps no messages; use --device cpu or cuda");
  }
  if (!options.links.empty() && !options.write_links.empty()) {
    reject("--links {} cannot be combined with --write-links {}; remove one of the flags", options.links,
           options.write_links);
  }
  for (const std::string& name : options.algorithms) {
    const auto& asked = options.collectives;
    if (std::ranges::any_of(asked, [&](Collective collective) { return has(collective, name); })) continue;
    reject("--algorithms {} is not an algorithm of {}; use one of {}", name, to_string(asked.front()),
           fmt::join(BenchOptions{}.algorithms_of(asked.front()), ", "));
  }
  if (!options.links.empty()) options.given_links = collectives::read_links(options.links);
  return options;
}

Manual bench_manual() {
  BenchOptions options;
  return {.program = "ranvier-bench",
          .summary = "measures links between ranks, collectives on them, and profiles of machines",
          .forms = {{"mpirun -n RANKS ranvier-bench [OPTION...]",
                     "links and collectives, one JSON line per measurement"},
                    {"mpirun -n RANKS ranvier-bench profile [OPTION...]",
                     "computing, memory, links and files, for predictions"}},
          .options = declare(options).facts(),
          .commands = {"profile"}};
}

std::uint64_t options_hash(const BenchOptions& options) {
  BenchOptions copy = options;
  auto resolved = declare(copy).resolved();
  for (const std::string& word : options.words) resolved.push_back({"", "what", word});
  if (options.given_links) resolved.push_back({"", "links", collectives::to_json(*options.given_links)});
  return hash_of(resolved);
}

}  // namespace ranvier::apps
