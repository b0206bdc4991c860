// Jobs whose ranks have several model chunks.
#include "tests/actors/same_bits.hpp"
#include "tests/test.hpp"
#include "tests/words.hpp"

using namespace ranvier;
using namespace ranvier::tests;
using actors::Policy;
using runtime::DType;
using runtime::MemorySpace;

namespace {

actors::TrainerOptions chunked(int stages, int chunks, Policy policy = Policy::message_driven) {
  auto options = small_run({stages, 1});
  options.chunks_per_rank = chunks;
  options.policy = policy;
  return options;
}

}  // namespace

TEST_CASE("the number of chunks per rank never changes a bit") {
  tests::Share share(1, 4);
  auto gpt = small_gpt(10);
  gpt.dropout = 0.1f;
  for (const int rows : {1, 2}) {
    auto options = small_run({1, rows});
    options.batch_size = 12 * rows;
    options.eval_every = 1;
    options.eval_samples = options.batch_size + 3;
    options.sample = {.every = 1, .prompt = {3, 1}, .tokens = 5, .sampling = {.temperature = 0.9, .seed = 4}};
    const auto reference = run_simulated(gpt, options, 1);
    CHECK(reference.texts.size() == 2);
    for (const auto& [stages, chunks] : {std::pair{2, 2}, {2, 6}, {3, 4}, {6, 2}}) {
      for (const Policy policy :
           {Policy::message_driven, Policy::one_f_one_b, Policy::gpipe, Policy::zero_bubble}) {
        if (!share.takes()) continue;
        INFO("stages ", stages, ", chunks ", chunks, ", policy ", actors::to_string(policy));
        options.grid.g_inter = stages;
        options.chunks_per_rank = chunks;
        options.policy = policy;
        check_same_bits(reference, run_simulated(gpt, options, 2));
      }
    }
  }
}

// Replay one with --seed=N.
TEST_CASE("chunks do not change any bit, with any order of messages, sharding and location of states") {
  for (const std::uint64_t seed : test::seeds(static_cast<std::uint64_t>(effort(60, 2000, 6)))) {
    CAPTURE(seed);
    std::mt19937_64 random(seed * 6364136223846793005ull + 1);
    const auto draw = [&](int least, int most) { return std::uniform_int_distribution(least, most)(random); };
    const DType compute = std::array{DType::f32, DType::bf16, DType::f16}[std::size_t(draw(0, 2))];
    const int rows = draw(1, 4), stages = draw(2, 4), chunks = draw(2, 3);
    auto gpt = small_gpt(draw(stages * chunks - 2, stages * chunks + 2));
    gpt.dropout = draw(0, 1) == 0 ? 0.0f : 0.1f;
    gpt.precision = {compute, draw(0, 1) == 0 ? DType::f32 : compute};
    const bool documents = draw(0, 3) == 0;
    const RandomTokens tokens(8, 37, 1 << 20, documents);
    const models::Architecture architecture = models::make_gpt(gpt);
    auto options = small_run({1, rows});
    options.precision = gpt.precision;
    options.policy = seed % 2 == 0 ? Policy::zero_bubble
                                   : std::array{Policy::message_driven, Policy::one_f_one_b, Policy::gpipe,
                                                Policy::message_driven}[seed / 2 % 4];
    options.microbatch_size = draw(1, 2);
    const int microbatches = options.policy == Policy::one_f_one_b ? stages * draw(1, 3) : draw(1, 9);
    options.batch_size = rows * (microbatches * options.microbatch_size - draw(0, options.microbatch_size - 1));
    options.clip = draw(0, 1);
    options.eval_every = draw(0, 2);
    options.eval_samples = draw(1, 2 * options.batch_size);
    options.sharding = collectives::parse_sharding(shardings[random() % shardings.size()]);
    options.group_size = rows % 2 == 0 ? draw(1, 2) : 1;
    options.algorithms = {"ring", "ring", "ring"};
    if (compute == DType::f16) options.loss_scale = {.scale = 1024, .dynamic = true};
    options.sample = {
        .every = draw(0, 2), .prompt = {3, 1}, .tokens = 5, .sampling = {.temperature = 0.9, .seed = 4}};
    const auto reference = run_simulated(architecture, tokens, options, 1);
    options.grid.g_inter = stages;
    options.chunks_per_rank = chunks;
    if (options.policy == Policy::zero_bubble) {
      options.defer_weights = draw(0, 1) == 0;
      if (options.defer_weights) options.policy = Policy::message_driven;
      if (draw(0, 2) > 0) options.deferred_limit = draw(0, 5);
    }
    if (options.policy != Policy::one_f_one_b) options.pipeline_limit = draw(0, 1) * draw(stages, 2 * stages + 1);
    draw_memory(options, draw);
    INFO("sharding ", to_string(options.sharding), ", rows ", rows, ", stages ", stages, ", chunks ", chunks,
         ", layers ", gpt.layers, ", policy ", actors::to_string(options.policy), ", defer_weights ",
         options.defer_weights, ", options.deferred_limit.value_or(-1) ", options.deferred_limit.value_or(-1),
         ", batch_size ", options.batch_size, ", microbatch_size ", options.microbatch_size, ", pipeline_limit ",
         options.pipeline_limit, ", recompute ", options.recompute, ", activations ",
         offload::to_string(options.tiers.activations), ", gradients ", offload::to_string(options.tiers.gradients),
         ", options.tiers.commit == actors::Commit::flip ", options.tiers.commit == actors::Commit::flip);
    const auto devices = draw(0, 2) == 0 ? Devices::inline_ : Devices::delayed;
    check_same_bits(reference, run_simulated(architecture, tokens, options, seed, {}, devices));
  }
}

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
