#include "apps/memory/job_memory.hpp"

#include "actors/states/sharded_unit.hpp"
#include "models/families/model.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::tests;
using apps::job_bytes;
using runtime::MemoryKind;

namespace {

constexpr std::size_t bucket = 8 << 20;

/// Myelin's example: 12 billion parameters on 24 stages and 2 rows, with activation checkpoints and 2-byte gradients.
struct PlannedJob {
  models::Architecture architecture;
  actors::TrainerOptions options;
  std::vector<actors::RankPlan> stages;

  explicit PlannedJob(actors::TierKind optimizer, runtime::DType gradient = runtime::DType::bf16,
                      std::size_t budget = 0) {
    auto gpt = std::get<models::GptOptions>(*models::named_model("gpt-12b"));
    gpt.precision = {runtime::DType::bf16, gradient};
    architecture = models::make_gpt(gpt);
    options.grid = {24, 2};
    options.batch_size = 16384;
    options.microbatch_size = 1;
    options.recompute_auto = true;
    options.precision = gpt.precision;
    options.tiers.optimizer = optimizer;
    options.tiers.optimizer_budget = budget;
    options.tiers.bucket_elements = bucket;
    const models::SampleBytes sample{512 * 4, 512 * 4};
    for (int stage = 0; stage < 24; ++stage)
      stages.push_back(actors::plan_rank(architecture, sample, options, stage * 2));
  }

  /// Elements of all stages' units: the token table is on two of them.
  [[nodiscard]] std::size_t stored() const {
    std::size_t elements = 0;
    for (const auto& stage : stages) {
      for (const auto& unit : stage.states->all()) elements += unit.elements;
    }
    return elements;
  }
};

/// Large items take complete pages, so bytes slightly exceed the elements' size.
double in_gigabytes(std::size_t bytes) { return static_cast<double>(bytes) / 1e9; }

}  // namespace

TEST_CASE("12 billion parameters on 48 ranks take about 500 GB, and about 130 with optimizer states on the host") {
  const PlannedJob all_on_device(actors::TierKind::device, runtime::DType::f32);
  const auto sum = [](const PlannedJob& job) {
    double bytes = 0;
    for (int k = 0; k < runtime::memory_kinds; ++k)
      bytes += static_cast<double>(job_bytes(job.stages, 2, static_cast<MemoryKind>(k)).device);
    return bytes / 1e9;
  };
  const std::size_t stored = all_on_device.stored();
  CHECK(static_cast<double>(stored) / static_cast<double>(all_on_device.architecture.parameters()) < 1.05);
  const auto check_bytes = [&](const PlannedJob& job, MemoryKind kind, std::size_t bytes_per_element) {
    CAPTURE(kind);
    CHECK(in_gigabytes(job_bytes(job.stages, 2, kind).device) ==
          doctest::Approx(in_gigabytes(2 * bytes_per_element * stored)).epsilon(1e-4));
  };
  check_bytes(all_on_device, MemoryKind::parameters, 2);
  check_bytes(all_on_device, MemoryKind::gradients, 4);
  check_bytes(all_on_device, MemoryKind::optimizer, 12);
  CHECK(sum(all_on_device) > 450);  // Myelin has 520 GB with 20 bytes per parameter, here it is 18
  CHECK(sum(all_on_device) < 520);

  const PlannedJob on_host(actors::TierKind::host);
  check_bytes(on_host, MemoryKind::parameters, 2);
  check_bytes(on_host, MemoryKind::gradients, 2);
  CHECK(job_bytes(on_host.stages, 2, MemoryKind::optimizer).host >= 2 * 12 * stored);
  CHECK(job_bytes(on_host.stages, 2, MemoryKind::optimizer).device <=
        48 * on_host.options.tiers.depth * 12 * bucket);
  CHECK(sum(on_host) > 120);
  CHECK(sum(on_host) < 140);

  const std::string table = apps::job_memory_table(on_host.architecture, on_host.stages, on_host.options);
  CAPTURE(table);
  check_has(table, {"memory of all 48 ranks", "4 with optimizer states off the device"});
  check_lacks(table, {"trained units"});
  CHECK(apps::units_in_budget(on_host.stages, on_host.options.tiers).empty());

  // Each stage keeps what fits: the budget is not exceeded, and used up to the largest unit.
  constexpr std::size_t budget = std::size_t{4} << 30;
  const PlannedJob partly(actors::TierKind::host, runtime::DType::bf16, budget);
  const std::size_t more = job_bytes(partly.stages, 2, MemoryKind::optimizer).device -
                           job_bytes(on_host.stages, 2, MemoryKind::optimizer).device;
  CHECK(in_gigabytes(more) < in_gigabytes(48 * budget) * 1.001);
  CHECK(in_gigabytes(more) > 0.5 * in_gigabytes(48 * budget));
  std::size_t kept = 0, trained = 0;
  for (const actors::RankPlan& stage : partly.stages) {
    kept += stage.states->optimizers_on_device();
    trained += stage.states->all().size();
  }
  const std::string units = apps::units_in_budget(partly.stages, partly.options.tiers);
  CHECK(units == fmt::format("{} of {} trained units", kept, trained));
  check_has(apps::job_memory_table(partly.architecture, partly.stages, partly.options), {units});
}

TEST_CASE("the table of a job's memory names the optimizer's states") {
  using actors::UpdateRule;
  using runtime::DType;
  struct Case {
    UpdateRule rule;
    bool has_momentum;
    const char *in_fp32, *in_bf16;
  };
  for (const auto& [rule, has_momentum, in_fp32, in_bf16] :
       {Case{UpdateRule::adamw, true, "  two moments, fp32\n", "  master weights and two moments, fp32\n"},
        {UpdateRule::muon, true, "  two moments (v without matrices), fp32\n",
         "  master weights and two moments (v without matrices), fp32\n"},
        {UpdateRule::sgd, true, "  momentum, fp32\n", "  master weights and momentum, fp32\n"},
        {UpdateRule::sgd, false, "  none, SGD without momentum\n", "  master weights, fp32\n"}}) {
    for (const auto& [compute, words] : {std::pair{DType::f32, in_fp32}, {DType::bf16, in_bf16}}) {
      models::GptOptions gpt{.layers = 2, .hidden = 32, .heads = 2, .vocab_size = 100, .sequence_length = 8};
      gpt.precision = {compute, DType::f32};
      const models::Architecture architecture = models::make_gpt(gpt);
      actors::TrainerOptions options;
      options.precision = gpt.precision;
      options.tiers.rule = rule;
      options.tiers.has_momentum = has_momentum;
      std::vector<actors::RankPlan> stages;
      stages.push_back(actors::plan_rank(architecture, {32, 32}, options, 0));
      check_has(apps::job_memory_table(architecture, stages, options), {words});
    }
  }
}

TEST_CASE("memory for computing on a GPU is planned along with the plan's arrays, staged messages included") {
  const models::GptOptions gpt{.layers = 4, .hidden = 64, .heads = 2, .vocab_size = 100, .sequence_length = 32};
  const models::Architecture architecture = models::make_gpt(gpt);
  actors::TrainerOptions options;
  options.grid = {2, 2};
  options.batch_size = 16;
  options.microbatch_size = 2;
  const auto planned = [&](std::optional<actors::TrainerOptions::GpuMemory> gpu, int rank) {
    options.gpu = gpu;
    const runtime::MemoryPlan memory = actors::plan_rank(architecture, {128, 128}, options, rank).memory;
    return std::pair(memory.bytes(runtime::MemorySpace::device), memory.bytes(runtime::MemorySpace::pinned));
  };
  for (const int rank : {0, 2}) {
    const auto [device, pinned] = planned(std::nullopt, rank);
    const auto [direct_device, direct_pinned] = planned({{.scratch_bytes = 1 << 20, .staged = false}}, rank);
    const auto [staged_device, staged_pinned] = planned({{.scratch_bytes = 1 << 20, .staged = true}}, rank);
    CHECK(direct_device == device + (1 << 20));
    // Two slots of 2 · 128 bytes of inputs or targets, each in a page.
    CHECK(direct_pinned == pinned + 2 * 4096);
    CHECK(staged_device == direct_device);
    // Two slots of 2 · 32 · 64 numbers per direction. Tied gradients of 4 · 100 · 64 bytes, four at a time per
    // direction. Four chunks of 1 MiB per direction for the column and for the group.
    CHECK(staged_pinned == direct_pinned + 4 * 2 * 32 * 64 * sizeof(float) + 8 * 32768 + (16 << 20));
  }
}
