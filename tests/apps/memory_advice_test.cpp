#include "apps/plan/start_plan.hpp"

#include "apps/files/train_job.hpp"
#include "apps/memory/job_plan.hpp"
#include "tests/apps/small_plan.hpp"
#include "tests/apps/train_flags.hpp"

using namespace ranvier;
using tests::Flags;
using tests::has;
using tests::parse_train;

namespace {

const apps::CurrentRanks four_ranks{{0, 0, 0, 0}, 1};

apps::TrainOptions job_with(const Flags& more) {
  return parse_train(join(
      "--dry-run --layers 4 --hidden 64 --heads 2 --vocab-size 256 --sequence-length 32 --batch-size 32", more));
}

std::size_t device_bytes(const apps::TrainOptions& options) {
  const apps::Job job = apps::make_job(options);
  actors::TrainerOptions trainer = options.trainer;
  trainer.node_of = four_ranks.nodes;
  trainer.threads = four_ranks.threads;
  trainer.prefetch = 0;
  std::size_t most = 0;
  for (const actors::RankPlan& stage : apps::plan_stages(job.architecture, job.sample, trainer))
    most = std::max(most, stage.memory.bytes(runtime::MemorySpace::device));
  return most;
}

std::string advice(const apps::TrainOptions& options, std::size_t device_bytes) {
  return apps::memory_advice(options, four_ranks, {.device_bytes = device_bytes, .device_is_host = true},
                             apps::make_job);
}

/// Flags of the first line below the heading.
Flags first_flags(const std::string& text) {
  std::istringstream words(tests::lines_of(text).at(1));
  Flags flags;
  for (std::string name, value; words >> name >> value && name.starts_with("--");)
    flags.insert(flags.end(), {name, value});
  return flags;
}

}  // namespace

TEST_CASE("flags that make a job fit were planned: if they are given, it fits") {
  const std::size_t all = device_bytes(job_with({}));
  const std::size_t least = device_bytes(job_with("--shard zero3 --microbatch-size 1 --recompute auto"));
  REQUIRE(least < all);
  for (const std::size_t capacity : {all - 1, (all + least) / 2, least + least / 20}) {
    CAPTURE(capacity);
    const std::string text = advice(job_with({}), capacity);
    CAPTURE(text);
    REQUIRE(has(text, "make the job fit (planned):\n  --"));
    CHECK(device_bytes(job_with(first_flags(text))) <= capacity);
  }
}

TEST_CASE("if no flags make a job fit, the advice has the closest candidate and what else would help") {
  const std::string text = advice(job_with("--shard zero1"), 4096);
  CAPTURE(text);
  CHECK(text.starts_with("closest: "));
  CHECK(has(text, "a rank's device memory is too small: "));
  CHECK(has(text, "use more ranks, --precision bf16, "));
  CHECK_FALSE(has(text, "make the job fit"));
}

TEST_CASE("advice changes given sharding, but not flags that are more specific than the searched ones") {
  const apps::TrainOptions options =
      job_with("--optimizer-tier host --recompute auto --microbatch-size 1 --shard ddp");
  const std::string text = advice(options, device_bytes(options) - 1);
  CAPTURE(text);
  REQUIRE(has(text, "make the job fit"));
  CHECK(has(text, "--shard "));
  CHECK_FALSE(has(text, "--offload "));
}

TEST_CASE("advice to offload states keeps on the device what fits, and a given budget that is too large shrinks") {
  const auto job = [](const Flags& more) {
    return parse_train(
        join("--dry-run --layers 16 --hidden 256 --heads 2 --vocab-size 256 --sequence-length 32 --batch-size 32 "
             "--shard zero3 --microbatch-size 1 --recompute auto --prefetch 0",
             more));
  };
  constexpr std::size_t left = 5 << 19;  // 2.5 MiB
  const std::size_t capacity = device_bytes(job("--offload myelin")) + left;
  REQUIRE(capacity < device_bytes(job({})));
  struct Case {
    const char *given, *kept, *advised;  ///< flags; those that stay; start of the first line
  };
  for (const auto& [given, kept, advised] :
       {Case{"", "", "--offload myelin --optimizer-budget "},
        Case{"--offload myelin --optimizer-budget 1GiB", "--offload myelin", "--optimizer-budget "}}) {
    const std::string text = advice(job(given), capacity);
    CAPTURE(text);
    REQUIRE(has(text, fmt::format("the job fit (planned):\n  {}", advised)));
    const std::size_t bytes = device_bytes(job(join(kept, first_flags(text))));
    CHECK(bytes <= capacity);
    CHECK(bytes > capacity - left);
  }
}

TEST_CASE("advice to store no states in files also removes --nvme, which would be refused") {
  const apps::TrainOptions options = job_with("--offload infinity-nvme --nvme states");
  const std::string text = apps::memory_advice(
      options, four_ranks, {.device_bytes = std::size_t{1} << 40, .disk_bytes = 1, .device_is_host = true},
      apps::make_job);
  CAPTURE(text);
  CHECK(has(text, "make the job fit"));
  CHECK(has(text, "--offload none and no --nvme"));
}
