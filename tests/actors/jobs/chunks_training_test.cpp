// Jobs whose ranks have several model chunks.
#include "tests/actors/same_bits.hpp"
#include "tests/test.hpp"
#include "tests/words.hpp"

using namespace ranvier;
using namespace ranvier::tests;
using actors::Policy;
using runtime::MemorySpace;

namespace {

actors::TrainerOptions chunked(int stages, int chunks, Policy policy = Policy::message_driven) {
  auto options = small_run({stages, 1});
  options.chunks_per_rank = chunks;
  options.policy = policy;
  return options;
}

}  // namespace

TEST_CASE("staged messages of chunks have their pinned memory before the first step") {
  const RandomTokens tokens(8, 37, 1 << 20, true);
  const auto architecture = models::make_gpt(small_gpt(7));
  for (const Policy policy : {Policy::message_driven, Policy::one_f_one_b, Policy::gpipe}) {
    auto options = small_run();
    options.batch_size = 12;
    const auto reference = run_simulated(architecture, tokens, options, 1);
    options.grid = {2, 1};
    options.policy = policy;
    options.chunks_per_rank = 3;
    options.gpu = actors::TrainerOptions::GpuMemory{.staged = true};
    check_same_bits(reference, run_simulated(architecture, tokens, options, 2, {}, Devices::far));
  }
}

TEST_CASE("chunks have their own slots, and share memory that holds nothing between passes") {
  const RandomTokens tokens(8, 37);
  const auto architecture = models::make_gpt(small_gpt(14));
  auto options = chunked(4, 2, Policy::one_f_one_b);
  options.batch_size = 32;
  const auto bytes_of = [](const actors::RankPlan& plan, const std::string& name) {
    std::size_t bytes = 0;
    for (const runtime::MemoryItem& item : plan.memory.items()) {
      if (item.name == name) bytes += item.slot_bytes * item.slots;
    }
    return bytes;
  };
  for (int rank = 0; rank < 4; ++rank) {
    CAPTURE(rank);
    const auto plan = actors::plan_rank(architecture, tokens.sample_bytes(), options, rank);
    CHECK(plan.slots == actors::slice_slots(options.policy, rank, 4, 2, 16, 0));
    REQUIRE(plan.layers.size() == 2);
    CHECK(plan.layers[1].begin - plan.layers[0].begin == 8);
    // Each chunk is as large as a stage of its layers, slot by slot, and has the rank's scratch once.
    std::size_t workspace = 0;
    for (std::size_t chunk = 0; chunk < 2; ++chunk) {
      runtime::MemoryPlan alone;
      const models::Stage stage(architecture,
                                {.layers = plan.layers[chunk],
                                 .capacity = {2, 8},
                                 .slots = plan.slots[chunk],
                                 .gradient_buffers = std::min(2, plan.slots[chunk]),
                                 .sample = tokens.sample_bytes()},
                                alone);
      const std::string suffix = ", chunk " + std::to_string(chunk);
      for (const runtime::MemoryItem& item : alone.items()) {
        CAPTURE(item.name);
        const bool scratch = bytes_of(plan, item.name + suffix) == 0;
        if (!scratch) CHECK(bytes_of(plan, item.name + suffix) == item.slot_bytes * item.slots);
        if (item.name == "layer scratch") workspace = std::max(workspace, item.slot_bytes);
      }
      CHECK(bytes_of(plan, "saved activations and output" + suffix) ==
            stage.sizes().slot * static_cast<std::size_t>(plan.slots[chunk]));
    }
    CHECK(bytes_of(plan, "layer scratch") == workspace);
  }
  // An additional slot adds the memory of one slot.
  auto driven = chunked(4, 2);
  driven.batch_size = 32;
  driven.pipeline_limit = 8;
  auto wider = driven;
  wider.pipeline_limit = 9;
  const auto activations = [&](const actors::TrainerOptions& of, std::size_t& slot) {
    const auto plan = actors::plan_rank(architecture, tokens.sample_bytes(), of, 1);
    slot = 0;
    for (std::size_t chunk = 0; chunk < 2; ++chunk) {
      const models::Stage& stage = plan.stage->slice(chunk);
      slot += stage.sizes().slot + stage.sizes().input * 2;
    }
    return plan.memory.bytes(MemorySpace::device, runtime::MemoryKind::activations);
  };
  std::size_t slot = 0;
  const std::size_t eight = activations(driven, slot);
  CHECK(activations(wider, slot) - eight == slot);
  // And so does a deferred slot, in each chunk.
  driven.defer_weights = true;
  const auto bytes_with = [&](std::optional<int> limit) {
    driven.deferred_limit = limit;
    return activations(driven, slot);
  };
  std::size_t place = 0;
  const auto plan = actors::plan_rank(architecture, tokens.sample_bytes(), driven, 1);
  for (std::size_t chunk = 0; chunk < 2; ++chunk) place += plan.stage->slice(chunk).sizes().deferred;
  const std::size_t one = bytes_with(1);
  for (int limit = 2; limit <= 8; ++limit) CHECK(bytes_with(limit) == one + std::size_t(limit - 1) * place);
  CHECK(bytes_with(9) == bytes_with(8));             // at most as many as slots
  CHECK(bytes_with(std::nullopt) == bytes_with(3));  // two more than there are earlier stages
}

TEST_CASE("unsupported combinations with chunks are refused with a remedy") {
  const auto architecture = models::make_gpt(small_gpt(6));
  const auto problem = [&](const actors::TrainerOptions& options) -> std::string {
    try {
      (void)plan_of(architecture, options, 0);
    } catch (const Error& error) {
      CHECK(error.code() == ErrorCode::usage);
      return error.what();
    }
    return "none";
  };
  const auto says = [&](const actors::TrainerOptions& options, const char* part) {
    check_has(problem(options), {part});
  };
  CHECK(problem(chunked(2, 2)) == "none");
  CHECK(problem(chunked(2, 4)) == "none");
  says(chunked(1, 2), "remove `chunks_per_rank`");
  says(chunked(2, 0), "`chunks_per_rank` is too small: 0");
  says(chunked(3, 3), "9 model chunks, but the model has 8 layers");
  CHECK(problem(chunked(2, 2, Policy::zero_bubble)) == "none");
  says(chunked(2, 2, Policy::zb_h1), "does not work with `policy` zb-h1");
  auto options = chunked(2, 2);
  options.defer_weights = true;
  CHECK(problem(options) == "none");
  options = chunked(3, 2, Policy::one_f_one_b);
  says(options, "a multiple of 3 microbatches per row, not 4");
  options.policy = Policy::message_driven;
  CHECK(problem(options) == "none");
  options.pipeline_limit = 2;
  says(options, "use 3 or more");
  options.policy = Policy::gpipe;
  CHECK(problem(options) == "none");
  options = chunked(2, 2);
  options.layers_per_stage = {4, 4};
  says(options, "one number per chunk");
  options.layers_per_stage = {2, 2, 3, 1};
  CHECK(problem(options) == "none");
  const auto plan = plan_of(architecture, options, 1);
  CHECK(plan.layers[0].begin == 2);
  CHECK(plan.layers[1].begin == 7);
}
