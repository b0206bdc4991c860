#include "apps/checkpoint/checkpoint_tool.hpp"

#include "runtime/host/cores.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <ranges>
#include <string_view>

namespace ranvier::apps {

namespace {

/// A command, with its line in the manual.
struct CheckpointCommand {
  std::string_view name;
  const char* arguments;
  const char* meaning;
  std::size_t paths;
  CheckpointToolResult (*run)(const CheckpointToolOptions& options);
};

const std::array commands = {
    CheckpointCommand{"list", "DIR", "all checkpoints: step, size, loss, grid, time, reason if incomplete", 1,
                      list_checkpoints},
    CheckpointCommand{"show", "PATH",
                      "options, scalars and arrays of one checkpoint; DIR: of the newest complete one", 1,
                      show_checkpoint},
    CheckpointCommand{"verify", "PATH", "verifies every byte of a checkpoint; DIR: of all checkpoints", 1,
                      verify_checkpoints},
    CheckpointCommand{"export", "PATH -o FOLDER", "writes weights for transformers and --init-from", 1,
                      export_weights},
    CheckpointCommand{"diff", "PATH PATH", "options and tensors that differ, with the largest difference", 2,
                      compare_checkpoints},
    CheckpointCommand{"prune", "DIR --keep N", "removes old checkpoints, unless a job writes to DIR", 1,
                      prune_checkpoints},
};

/// Each heading is the command that its flags belong to.
OptionTable declare(CheckpointToolOptions& options) {
  OptionTable table;
  table.rest(options.paths);
  table.concern("verify");
  table.add(
      {"threads", "N", "Number of threads that read and verify; 0: one per core", whole(options.threads, 0, 1024)});
  table.concern("export");
  table.add({"output", "FOLDER", "Folder for the weights, config.json and the tokenizer (-o for short)",
             text(options.output), "none"});
  table.add({"file-size", "SIZE", "Largest weights file; larger models are split into several files with an index",
             bytes(options.file_bytes)});
  table.add({"overwrite", "", "Replace existing weights", switch_on(options.overwrite)});
  table.add({"merge", "",
             "For a run with adapters: write complete weights with the adapters added, instead of the adapters",
             switch_on(options.merge)});
  table.concern("prune");
  table.add({"keep", "N", "Number of newest complete checkpoints to keep", whole(options.keep, 1), "none"});
  table.add({"archive-every", "STEPS", "Also keep checkpoints whose step is a multiple of N; 0: none",
             whole(options.archive_every, 0)});
  table.add({"dry-run", "", "Print the checkpoints that would be removed, and remove nothing",
             switch_on(options.dry_run)});
  declare_info(table, options.info);
  return table;
}

std::string names_of_commands() {
  return fmt::format("{}", fmt::join(commands | std::views::transform(&CheckpointCommand::name), ", "));
}

}  // namespace

CheckpointToolOptions parse_checkpoint_options(int argc, const char* const* argv) {
  CheckpointToolOptions options;
  OptionTable table = declare(options);
  table.parse(argc, argv);
  if (options.info.any()) return options;
  if (options.paths.empty()) reject("command is missing; use one of {}", names_of_commands());
  const std::string command = options.paths.front();
  options.paths.erase(options.paths.begin());
  const auto form = std::ranges::find(commands, command, &CheckpointCommand::name);
  if (form == commands.end()) reject("unknown command: '{}'; use one of {}", command, names_of_commands());
  options.run = form->run;
  if (options.paths.size() != form->paths)
    reject("{} needs {}, not {}; see ranvier-checkpoint --help", command,
           form->paths == 1 ? "one path" : "two paths", options.paths.size());
  for (const OptionInfo& flag : table.facts()) {
    const bool is_of_command =
        std::ranges::find(commands, flag.concern, &CheckpointCommand::name) != commands.end();
    if (table.given(flag.name) && is_of_command && flag.concern != command)
      reject("--{0} applies to {1}, not to {2}; remove --{0}", flag.name, flag.concern, command);
  }
  if (command == "export" && options.output.empty())
    reject("--output is missing; add --output FOLDER for the weights");
  if (command == "prune" && options.keep == 0)
    reject("--keep is missing; add --keep N, the number of checkpoints to keep");
  if (options.threads == 0) options.threads = runtime::available_cores();
  return options;
}

Manual checkpoint_manual() {
  CheckpointToolOptions options;
  Manual manual{
      .program = "ranvier-checkpoint",
      .summary =
          "inspects, verifies, exports and prunes checkpoints of ranvier-train, also while a job writes them",
      .status_1 = "diff found differences",
      .options = declare(options).facts(),
      .arguments = PathKind::any};
  for (const CheckpointCommand& command : commands) {
    manual.forms.emplace_back(fmt::format("ranvier-checkpoint {} {}", command.name, command.arguments),
                              command.meaning);
    manual.commands.emplace_back(command.name);
  }
  return manual;
}

}  // namespace ranvier::apps
