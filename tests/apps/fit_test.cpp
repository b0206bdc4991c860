#include "apps/memory/fit.hpp"

#include "apps/memory/job_plan.hpp"
#include "models/families/gpt.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::tests;
using apps::FitResult;
using apps::JobCapacity;
using runtime::MemorySpace;

namespace {

struct SizedJob {
  models::Architecture architecture;
  models::SampleBytes sample{256 * 4, 256 * 4};
  actors::TrainerOptions options;

  explicit SizedJob(runtime::GridShape grid) {
    models::GptOptions gpt{.layers = 12, .hidden = 256, .heads = 4, .vocab_size = 512, .sequence_length = 256};
    gpt.precision = {runtime::DType::bf16, runtime::DType::f32};
    architecture = models::make_gpt(gpt);
    options.grid = grid;
    options.batch_size = 16;
    options.microbatch_size = 4;
    options.precision = gpt.precision;
  }

  [[nodiscard]] std::size_t device_bytes() const {
    std::size_t most = 0;
    for (const auto& stage : apps::plan_stages(architecture, sample, options))
      most = std::max(most, stage.memory.bytes(MemorySpace::device));
    return most;
  }
  [[nodiscard]] FitResult in(const JobCapacity& capacity) const {
    return apps::verdict(options, apps::plan_stages(architecture, sample, options), capacity);
  }
};

}  // namespace

TEST_CASE("a job fits into exactly its planned bytes, and not into one less") {
  const SizedJob job({2, 2});
  const FitResult exactly = job.in({.device_bytes = job.device_bytes()});
  CHECK(exactly.fits);
  check_has(exactly.text, {"fits"});
  const FitResult short_of_one = job.in({.device_bytes = job.device_bytes() - 1});
  CHECK_FALSE(short_of_one.fits);
  CHECK_FALSE(short_of_one.states_fit);
  check_has(short_of_one.text, {"does not fit"});
}

TEST_CASE("without information about the devices, a job fits as far as is known") {
  const FitResult verdict = SizedJob({1, 2}).in({});
  CHECK(verdict.fits);
  check_has(verdict.text, {"unknown; set --device-memory"});  // a GPU's memory
}

TEST_CASE("weights of --save need space on their disk, in addition to states in files on the same disk") {
  SizedJob job({1, 2});
  constexpr std::size_t MiB = 1 << 20;
  const FitResult fits = job.in({.save_bytes = 5 * MiB, .saved_bytes = 5 * MiB});
  CHECK(fits.fits);
  check_has(fits.text, {"weights of --save"});
  const FitResult full = job.in({.save_bytes = 3 * MiB, .saved_bytes = 5 * MiB});
  CHECK_FALSE(full.fits);
  check_has(full.text, {"free 2.0 MiB more on the disk of --save"});
  CHECK(full.states_fit);  // no flag makes weights smaller
  check_has(job.in({.saved_bytes = 5 * MiB}).text, {"(available unknown)"});

  job.options.tiers.optimizer = actors::TierKind::nvme;
  const std::size_t files =
      2 * apps::plan_stages(job.architecture, job.sample, job.options)[0].memory.bytes(MemorySpace::nvme);
  REQUIRE(files > 0);
  CHECK(job.in({.disk_bytes = files, .save_bytes = files, .saved_bytes = files}).fits);
  CHECK_FALSE(
      job.in({.disk_bytes = files, .save_bytes = 2 * files - 1, .saved_bytes = files, .states_beside_save = 1})
          .fits);
  CHECK(job.in({.disk_bytes = files, .save_bytes = 2 * files, .saved_bytes = files, .states_beside_save = 1}).fits);
  CHECK(job.in({.disk_bytes = files, .save_bytes = 2 * files - 1, .saved_bytes = files, .states_beside_save = 0.5})
            .fits);
}

TEST_CASE("host memory and disks are checked like devices, summed over the ranks of a node") {
  SizedJob job({1, 2});
  job.options.tiers.optimizer = actors::TierKind::host;
  const auto stages = apps::plan_stages(job.architecture, job.sample, job.options);
  const std::size_t host =
      2 * (stages[0].memory.bytes(MemorySpace::host) + stages[0].memory.bytes(MemorySpace::pinned));
  CHECK(job.in({.host_bytes = host}).fits);
  CHECK_FALSE(job.in({.host_bytes = host - 1}).fits);
  CHECK_FALSE(job.in({.host_bytes = host, .device_is_host = true}).fits);
  job.options.node_of = {0, 1};  // one node each
  CHECK(job.in({.host_bytes = host / 2}).fits);
}
