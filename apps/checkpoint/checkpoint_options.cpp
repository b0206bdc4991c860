#include "apps/checkpoint/checkpoint_options.hpp"

#include "runtime/host/cores.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace ranvier::apps {

namespace {

struct CommandForm {
  std::string_view name;
  CheckpointCommand command;
  std::size_t paths;
  std::vector<std::string_view> flags;  ///< flags of the command
};

const std::array command_forms = {
    CommandForm{"list", CheckpointCommand::list, 1, {}},
    CommandForm{"show", CheckpointCommand::show, 1, {}},
    CommandForm{"verify", CheckpointCommand::verify, 1, {"threads"}},
    CommandForm{"export", CheckpointCommand::export_weights, 1, {"output", "file-size", "overwrite", "merge"}},
    CommandForm{"diff", CheckpointCommand::diff, 2, {}},
    CommandForm{"prune", CheckpointCommand::prune, 1, {"keep", "archive-every", "dry-run"}},
};

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
  std::vector<std::string_view> names;
  for (const CommandForm& form : command_forms) names.push_back(form.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

CheckpointToolOptions parse_checkpoint_options(int argc, const char* const* argv) {
  CheckpointToolOptions options;
  OptionTable table = declare(options);
  table.parse(argc, argv);
  if (options.info.any()) return options;
  if (options.paths.empty()) fail(ErrorCode::usage, "command is missing; use one of {}", names_of_commands());
  const std::string command = options.paths.front();
  options.paths.erase(options.paths.begin());
  const auto form = std::find_if(command_forms.begin(), command_forms.end(),
                                 [&](const CommandForm& each) { return each.name == command; });
  if (form == command_forms.end())
    fail(ErrorCode::usage, "unknown command: '{}'; use one of {}", command, names_of_commands());
  options.command = form->command;
  if (options.paths.size() != form->paths)
    fail(ErrorCode::usage, "{} needs {}, not {}; see ranvier-checkpoint --help", command,
         form->paths == 1 ? "one path" : "two paths", options.paths.size());
  for (const CommandForm& other : command_forms)
    for (const std::string_view flag : other.flags)
      if (table.given(flag) && std::find(form->flags.begin(), form->flags.end(), flag) == form->flags.end())
        fail(ErrorCode::usage, "--{0} applies to {1}, not to {2}; remove --{0}", flag, other.name, command);
  if (options.command == CheckpointCommand::export_weights && options.output.empty())
    fail(ErrorCode::usage, "--output is missing; add --output FOLDER for the weights");
  if (options.command == CheckpointCommand::prune && options.keep == 0)
    fail(ErrorCode::usage, "--keep is missing; add --keep N, the number of checkpoints to keep");
  if (options.threads == 0) options.threads = runtime::available_cores();
  return options;
}

Manual checkpoint_manual() {
  CheckpointToolOptions options;
  Manual manual{
      .program = "ranvier-checkpoint",
      .summary =
          "inspects, verifies, exports and prunes checkpoints of ranvier-train, also while a job writes them",
      .forms = {{"ranvier-checkpoint list DIR",
                 "all checkpoints: step, size, loss, grid, time, reason if incomplete"},
                {"ranvier-checkpoint show PATH",
                 "options, scalars and arrays of one checkpoint; DIR: of the newest complete one"},
                {"ranvier-checkpoint verify PATH", "verifies every byte of a checkpoint; DIR: of all checkpoints"},
                {"ranvier-checkpoint export PATH -o FOLDER", "writes weights for transformers and --init-from"},
                {"ranvier-checkpoint diff PATH PATH",
                 "options and tensors that differ, with the largest difference"},
                {"ranvier-checkpoint prune DIR --keep N", "removes old checkpoints, unless a job writes to DIR"}},
      .status_1 = "diff found differences",
      .options = declare(options).facts(),
      .arguments = PathKind::any};
  for (const CommandForm& form : command_forms) manual.commands.emplace_back(form.name);
  return manual;
}

}  // namespace ranvier::apps
