// models::Stage is tested here, next to the actor that drives it.
#include "actors/rank/rank_plan.hpp"
#include "models/families/gpt.hpp"
#include "tests/actors/simulated_job.hpp"
#include "tests/test.hpp"

using namespace ranvier;

namespace {

std::size_t planned_bytes(int recompute, int slots) {
  const auto gpt = tests::small_gpt(8);
  const auto architecture = models::make_gpt(gpt);
  runtime::MemoryPlan plan;
  const models::Stage stage(
      architecture,
      {.layers = {1, 9}, .capacity = {4, gpt.sequence_length}, .slots = slots, .recompute = recompute}, plan);
  return plan.bytes(runtime::MemorySpace::device);
}

}  // namespace

TEST_CASE("recomputation plans less memory than keeping everything") {
  CHECK(planned_bytes(2, 4) < planned_bytes(0, 4) / 2);
}

TEST_CASE("the automatic interval is the factor of the number of layers with the least planned bytes") {
  const auto gpt = tests::small_gpt(8);
  const auto architecture = models::make_gpt(gpt);
  for (const int slots : {1, 2, 8}) {
    const int chosen = models::choose_recompute(
        architecture, {.layers = {1, 9}, .capacity = {4, gpt.sequence_length}, .slots = slots});
    for (const int interval : {1, 2, 4, 8}) CHECK(planned_bytes(chosen, slots) <= planned_bytes(interval, slots));
  }
}

TEST_CASE("all activations are saved if they fit, and take more memory than few") {
  using models::SavedActivations;
  const auto architecture = models::make_gpt(tests::small_gpt(4));
  auto options = tests::small_run({2, 1});
  const auto planned = [&](int recompute) {
    options.recompute = recompute;
    return tests::plan_of(architecture, options, 0);
  };
  for (const int recompute : {0, 1}) {
    CAPTURE(recompute);
    std::size_t bytes[2];
    for (const SavedActivations saved : {SavedActivations::few, SavedActivations::all}) {
      options.saved_activations = saved;
      const auto plan = planned(recompute);
      CHECK(plan.stage->capacity().saved == saved);
      bytes[static_cast<int>(saved)] = plan.memory.bytes(runtime::MemorySpace::device);
    }
    CHECK(bytes[0] < bytes[1]);
    options.saved_activations.reset();
    for (const std::size_t there : {bytes[1], bytes[1] - 1}) {
      options.device_bytes = there;
      CHECK(planned(recompute).memory.bytes(runtime::MemorySpace::device) == bytes[there == bytes[1] ? 1 : 0]);
    }
    options.device_bytes.reset();
    CHECK(planned(recompute).stage->capacity().saved == SavedActivations::few);
  }
}

TEST_CASE("a stage knows its ends and its units") {
  const auto architecture = models::make_gpt(tests::small_gpt(4));
  auto options = tests::small_run({2, 1});
  const auto front = tests::plan_of(architecture, options, 0);
  const auto back = tests::plan_of(architecture, options, 1);
  CHECK(front.stage->first());
  CHECK(!front.stage->last());
  CHECK(back.stage->last());
  CHECK(front.stage->units().front().name == "wte");
  CHECK(back.stage->units().back().name == "ln_f");
  // The tied unit is on both stages; each names the other as the partner of its row.
  CHECK(front.gradients.tied.options.partners.front() == std::optional<int>(1));
  CHECK(front.stage->layers() + back.stage->layers() == architecture.layers.size());
}

TEST_CASE(
    "layers of another precision than the job's are refused: their memory is planned for the job's precision") {
  models::GptOptions gpt = tests::small_gpt(4);
  gpt.precision = {runtime::DType::f32, runtime::DType::f32};
  const auto architecture = models::make_gpt(gpt);
  auto options = tests::small_run();
  options.precision = {runtime::DType::bf16, runtime::DType::f32};
  CHECK_THROWS_WITH_AS((void)tests::plan_of(architecture, options, 0),
                       doctest::Contains("compute in fp32 with gradients in fp32, but the plan has bf16"), Error);
}

TEST_CASE("a batch that is not divisible by the rows is refused") {
  const auto architecture = models::make_gpt(tests::small_gpt(4));
  auto options = tests::small_run({1, 3});
  CHECK_THROWS_WITH_AS((void)tests::plan_of(architecture, options, 0),
                       doctest::Contains("`batch_size` 8 is not divisible by `g_data` 3"), Error);
}
