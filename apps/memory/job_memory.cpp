#include "apps/memory/job_memory.hpp"

#include "actors/watch/reporter.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace ranvier::apps {

using runtime::MemoryKind;
using runtime::MemorySpace;

namespace {

/// Explanation of a kind in the table.
std::string meaning_of(MemoryKind kind, const actors::TrainerOptions& options) {
  const std::string_view compute = to_string(options.precision.compute);
  switch (kind) {
    case MemoryKind::parameters:
      return fmt::format("compute copy, {}", compute);
    case MemoryKind::gradients:
      return fmt::format("accumulated over a batch, {}", to_string(options.precision.gradient));
    case MemoryKind::optimizer: {
      const auto [master, moments] = std::pair(to_string(options.tiers.master), to_string(options.tiers.moments));
      const std::size_t count = options.tiers.arrays_of(true) - 1;
      const bool muon = options.tiers.rule == actors::UpdateRule::muon;
      const std::string_view names = muon         ? "two moments (v without matrices)"
                                     : count == 2 ? "two moments"
                                                  : "momentum";
      if (!actors::separate_master(options.precision, options.tiers))
        return count == 0 ? "none, SGD without momentum" : fmt::format("{}, {}", names, moments);
      const std::string_view spare =
          options.tiers.commit == actors::Commit::flip && !actors::every_step_counts(options) ? ", and a spare copy"
                                                                                              : "";
      if (count == 0) return fmt::format("master weights, {}{}", master, spare);
      return fmt::format("master weights{} and {}, {}{}", master == moments ? "" : fmt::format(", {},", master),
                         names, moments, spare);
    }
    case MemoryKind::activations:
      return "microbatches in flight, and gradients between layers";
    case MemoryKind::messages:
      return "buffers of messages and collectives";
    case MemoryKind::workspace:
      return "layer workspace, buffers for gathered parameters, staging";
  }
  return {};
}

std::string cell(std::size_t bytes) {
  return bytes == 0 ? "–" : fmt::format("{:.2f}", static_cast<double>(bytes) / 1e9);
}

}  // namespace

JobBytes job_bytes(const std::vector<actors::RankPlan>& stages, int g_data, MemoryKind kind) {
  JobBytes sum;
  for (const actors::RankPlan& stage : stages) {
    const auto bytes = [&](MemorySpace space) {
      return stage.memory.bytes(space, kind) * static_cast<std::size_t>(g_data);
    };
    sum.device += bytes(MemorySpace::device);
    sum.host += bytes(MemorySpace::pinned) + bytes(MemorySpace::host);
    sum.nvme += bytes(MemorySpace::nvme);
  }
  return sum;
}

std::string job_memory_table(const models::Architecture& architecture, const std::vector<actors::RankPlan>& stages,
                             const actors::TrainerOptions& options) {
  const auto parameters = static_cast<double>(architecture.parameters());
  const int g_data = options.grid.g_data, ranks = options.grid.ranks();
  std::string text = fmt::format(
      "memory of all {} ranks in GB (1e9 bytes); on the device also in bytes per model parameter\n"
      "  {:<12} {:>9} {:>10} {:>9} {:>9}\n",
      ranks, "", "device", "per param", "host", "nvme");
  JobBytes all;
  const auto line = [&](const std::string& name, const JobBytes& bytes, const std::string& meaning) {
    text +=
        fmt::format("  {:<12} {:>9} {:>10.2f} {:>9} {:>9}  {}\n", name, cell(bytes.device),
                    static_cast<double>(bytes.device) / parameters, cell(bytes.host), cell(bytes.nvme), meaning);
  };
  for (int k = 0; k < runtime::memory_kinds; ++k) {
    const auto kind = static_cast<MemoryKind>(k);
    const JobBytes bytes = job_bytes(stages, g_data, kind);
    all.device += bytes.device;
    all.host += bytes.host;
    all.nvme += bytes.nvme;
    std::string meaning = meaning_of(kind, options);
    const std::string kept = kind == MemoryKind::optimizer ? units_in_budget(stages, options.tiers) : "";
    if (!kept.empty()) meaning += fmt::format("; {} keep theirs on the device", kept);
    line(to_string(kind), bytes, meaning);
  }
  line("total", all, "");
  // Frozen parameters have 2 bytes with and without offload.
  const auto trained = static_cast<double>(architecture.trained_parameters());
  const double copies = trained * g_data / 1e9, frozen = 2 * (parameters - trained) * g_data / 1e9;
  const double activations = static_cast<double>(job_bytes(stages, g_data, MemoryKind::activations).device) / 1e9;
  const double buckets = 16.0 * static_cast<double>(options.tiers.bucket_elements) * ranks / 1e9;
  const double resident = 4 * copies + frozen;
  text += fmt::format(
      "Myelin §V-B, half precision, {} rows: 20 bytes per {} without offload, {:.0f} GB with these activations;\n"
      "  4 with optimizer states off the device, and 16 per element of a rank's bucket: {:.0f} + {:.0f} + {:.0f} "
      "of "
      "activations = {:.0f} GB\n",
      g_data, frozen > 0 ? "trained parameter and 2 per frozen one" : "parameter",
      20 * copies + frozen + activations, resident, buckets, activations, resident + buckets + activations);
  return text;
}

std::string units_in_budget(const std::vector<actors::RankPlan>& stages, const actors::TierOptions& tiers) {
  if (tiers.optimizer == actors::TierKind::device || tiers.optimizer_budget == 0) return {};
  std::size_t kept = 0;
  std::ptrdiff_t trained = 0;
  for (const actors::RankPlan& stage : stages) {
    kept += stage.states->optimizers_on_device();
    trained += std::ranges::count_if(stage.states->all(), &actors::UnitState::trained);
  }
  return fmt::format("{} of {} trained units", kept, trained);
}

std::string checkpoint_line(const std::vector<actors::RankPlan>& stages, int rows) {
  std::size_t most = 0, all = 0;
  for (const actors::RankPlan& stage : stages) {
    std::size_t bytes = 0;
    for (const actors::StatePiece& piece : stage.snapshot.pieces) bytes += piece.bytes();
    most = std::max(most, bytes);
    all += bytes * static_cast<std::size_t>(rows);
  }
  if (all == 0) return {};
  return fmt::format("checkpoint: {} in total, up to {} per rank\n", runtime::format_bytes(all),
                     runtime::format_bytes(most));
}

}  // namespace ranvier::apps
