#include "apps/train/report.hpp"

#include "actors/predict/operation_count.hpp"
#include "apps/program/text_table.hpp"
#include "models/families/gpt.hpp"
#include "tests/apps/train_flags.hpp"

using namespace ranvier;
using namespace ranvier::tests;

namespace {

/// Startup table with buckets on two rows, where a rank updates its half of every unit or all of it.
std::string start(int bucket_elements, actors::TierKind states, const char* sharding, std::size_t budget = 0) {
  apps::TrainOptions options;
  options.ranks = 2;
  options.model.gpt() = {.layers = 2, .hidden = 32, .heads = 2, .vocab_size = 64, .sequence_length = 8};
  actors::TrainerOptions& trainer = options.trainer;
  trainer.batch_size = 2;
  trainer.grid = {1, 2};
  trainer.sharding = collectives::parse_sharding(sharding);
  trainer.tiers.bucket_elements = static_cast<std::size_t>(bucket_elements);
  trainer.tiers.optimizer = states;
  trainer.tiers.optimizer_budget = budget;
  const auto architecture = models::make_gpt(options.model.gpt());
  std::vector<actors::RankPlan> stages;
  stages.push_back(actors::plan_rank(architecture, {8 * 4, 8 * 4}, trainer, 0));
  return apps::start_table(options, architecture, stages);
}

/// Startup output of an uneven run of 64 stages, with a flag of every topic.
std::string start_of_64_stages(apps::Request request) {
  const Flags flags(
      "--layers 140 --hidden 64 --heads 2 --g-inter 64 --shard zero1 --batch-size 128 --microbatch-size 1 "
      "--policy 1f1b --recompute 2 --learning-rate 0.001 --precision bf16 --threads 2 --device-memory 4GiB "
      "--offload infinity-cpu --bucket-size 1000 --checkpoint checkpoints --checkpoint-every 50 --trace "
      "trace.json --log-every 10 --timeout 30 --seed 5 --clip 0.5 --eval-every 10 --validation-split 0.25 "
      "--quiet --data a/long/path/to/what/it/reads/that/goes/on/and/on/and/on/until/it/is/here.txt");
  apps::TrainOptions options = parse_train(join({"--save", "weights here"}, flags), 128);
  options.run.request = request;
  actors::TrainerOptions& trainer = options.trainer;
  constexpr int uneven[] = {1, 3, 2, 3};  // 140 layers and the two ends
  for (std::size_t s = 0; s < 64; ++s) trainer.layers_per_stage.push_back(s == 63 ? 1 : uneven[s % 4]);
  const auto architecture = models::make_gpt(options.model.gpt());
  std::vector<actors::RankPlan> stages;
  for (int s = 0; s < 64; ++s) stages.push_back(actors::plan_rank(architecture, {64 * 4, 64 * 4}, trainer, 2 * s));
  return apps::start_table(options, architecture, stages);
}

}  // namespace

TEST_CASE("the startup output of any run fits a screen, and a dry run shows all") {
  const std::string text = start_of_64_stages(apps::Request::train);
  INFO(text);
  const std::vector<std::string> lines = lines_of(text);
  CHECK(lines.size() <= 24);
  for (const std::string& line : lines) CHECK(apps::display_columns(line) <= 120);
  CHECK(text.find("given    --layers 140 --hidden 64") == 0);
  check_has(text, {"--save 'weights here'", " --quiet ", "\nchosen   "});
  check_lacks(text, {"--beta2"});  // its usual value
  check_has(text, {" more stages; use --dry-run"});
  // Titles are aligned with their numbers.
  const auto title =
      std::find_if(lines.begin(), lines.end(), [](const auto& l) { return l.starts_with("stage "); });
  REQUIRE(title != lines.end());
  for (auto line = title + 1; line != lines.end() && !line->starts_with("and "); ++line)
    CHECK(apps::display_columns(*line) == apps::display_columns(*title));

  const std::string all = start_of_64_stages(apps::Request::dry_run);
  check_has(all, {"beta2 0.95", "goes/on/and/on/and/on/until/it/is/here.txt"});
  check_lacks(all, {"more stages"});
  CHECK(lines_of(all).size() > 64);
}

TEST_CASE("the startup output says that all activations are saved, and on how many stages") {
  apps::TrainOptions options;
  options.ranks = 2;
  options.model.gpt() = {.layers = 2, .hidden = 32, .heads = 2, .vocab_size = 64, .sequence_length = 8};
  options.trainer.batch_size = 2;
  options.trainer.grid = {2, 1};
  const auto architecture = models::make_gpt(options.model.gpt());
  using Saved = models::SavedActivations;
  const auto start = [&](Saved front, Saved back) {
    std::vector<actors::RankPlan> stages;
    for (const Saved saved : {front, back}) {
      options.trainer.saved_activations = saved;
      stages.push_back(
          actors::plan_rank(architecture, {8 * 4, 8 * 4}, options.trainer, static_cast<int>(stages.size())));
    }
    return apps::start_table(options, architecture, stages);
  };
  check_lacks(start(Saved::few, Saved::few), {"saved activations"});
  check_has(start(Saved::few, Saved::all), {"\nsaved activations: all on 1 of 2 stages\n"});
  check_has(start(Saved::all, Saved::all), {"\nsaved activations: all\n"});
  options.run.request = apps::Request::dry_run;
  check_has(start(Saved::few, Saved::few), {"\nsaved activations: few\n"});
}

TEST_CASE("the startup output says how many units keep offloaded optimizer states on the device") {
  using actors::TierKind;
  check_has(start(1000, TierKind::host, "ddp", 20'000),
            {"\noptimizer states on the device: 3 of 5 trained units, in up to 19.5 KiB per rank "
             "(--optimizer-budget)\n"});
  check_lacks(start(1000, TierKind::host, "ddp"), {"trained units"});
  check_lacks(start(1000, TierKind::device, "ddp", 20'000), {"trained units"});
}

TEST_CASE("the startup output names types of messages that differ from the data's") {
  const auto start_with = [](const Flags& flags, int ranks = 4) {
    const apps::TrainOptions options = parse_train(
        join("--data a --layers 2 --hidden 64 --heads 2 --batch-size 4 --threads 1 --precision bf16 --shard zero3",
             flags),
        ranks);
    const auto architecture = models::make_gpt(options.model.gpt());
    std::vector<actors::RankPlan> stages;
    stages.push_back(actors::plan_rank(architecture, {8 * 4, 8 * 4}, options.trainer, 0));
    return apps::start_table(options, architecture, stages);
  };
  check_lacks(start_with({}), {"messages: "});
  check_lacks(start_with("--gather-dtype int8", 1), {"messages: "});
  check_has(start_with("--gather-dtype int8"), {"\nmessages: parameters in int8\n"});
  check_has(
      start_with("--gather-dtype inter=int8 --reduce-dtype inter=int4,intra=int8"),
      {"\nmessages: parameters in int8 between nodes, gradients in int4 between nodes, gradients in int8 inside "
       "nodes\n"});
}

TEST_CASE("columns of a table are as wide as their widest cell, in characters") {
  apps::TextTable table({{"n"}, {"layers", true}, {"bytes"}});
  table.add({"7", "h.0 … h.1", "1.0 MiB"});
  table.add({"1234", "head", "1048576.0 MiB"});
  CHECK(table.text() ==
        "   n  layers             bytes\n"
        "   7  h.0 … h.1        1.0 MiB\n"
        "1234  head       1048576.0 MiB\n");
  CHECK(table.width() == 30);
  CHECK(apps::shortened("h.0 … h.1", 9) == "h.0 … h.1");
  CHECK(apps::shortened("h.0 … h.1", 6) == "h.0 ……");
}

TEST_CASE("the startup output has the size of buckets, and reports requested sizes that are too small") {
  using enum actors::TierKind;
  // A block has 12 · 32² + 13 · 32 = 12704 parameters, padded to a multiple of 2 · 32.
  check_has(start(1 << 24, host, "ddp"), {"buckets: up to 12736 elements per rank\n"});
  check_has(start(1 << 24, host, "zero1"), {"buckets: up to 6368 elements per rank\n"});
  check_has(start(3000, host, "ddp"), {"buckets: up to 2048 elements per rank\n"});
  check_has(start(3000, host, "zero1"), {"buckets: up to 2560 elements per rank\n"});
  const char* rounded =
      "buckets: up to 1024 elements per rank, rounded up from --bucket-size 200 to 512 for each of 2 shards\n";
  for (const auto states : {device, host}) CHECK(start(200, states, "ddp").find(rounded) != std::string::npos);
  check_has(start(200, host, "zero1"), {"to 512 for each of 1 shard\n"});
  check_lacks(start(1 << 24, device, "ddp"), {"buckets:"});
}

TEST_CASE("the startup output has the counted launches and messages at a batch's end, of the stage with the most") {
  // The second stage, which has three of four blocks, has the most.
  const auto architecture =
      models::make_gpt({.layers = 4, .hidden = 64, .heads = 2, .vocab_size = 64, .sequence_length = 8});
  std::size_t at_8_rows = 0;
  for (const int rows : {8, 64, 512}) {
    CAPTURE(rows);
    actors::TrainerOptions trainer;
    trainer.batch_size = rows;
    trainer.grid = {2, rows};
    trainer.layers_per_stage = {2, 4};
    trainer.group_size = 4;
    trainer.sharding = collectives::parse_sharding("paro-iig");
    trainer.tiers.bucket_elements = std::size_t{1} << 15;
    std::vector<actors::RankPlan> stages;
    for (const int stage : {0, 1})
      stages.push_back(actors::plan_rank(architecture, {8 * 4, 8 * 4}, trainer, stage * rows + 1));
    const actors::OperationCount first = count_operations(stages[0]), most = count_operations(stages[1]);
    REQUIRE(first.launches() < most.launches());
    REQUIRE(first.messages < most.messages);
    for (const std::size_t number : {most.steps, most.squares, most.additions, most.collectives, most.messages})
      REQUIRE(number > 0);
    const std::string line = apps::operations_line(stages);
    CHECK(line ==
          fmt::format(
              "end of a batch per rank, with plans and states on the device: {} launches ({} AdamW, {} squared "
              "norms, {} copies, {} additions); {} collectives in {} messages\n",
              most.steps + most.squares + most.copies + most.additions, most.steps, most.squares, most.copies,
              most.additions, most.collectives, most.messages));
    std::reverse(stages.begin(), stages.end());
    CHECK(apps::operations_line(stages) == line);
    // A bucket is one launch of each kind, regardless of the number of ranks that shard it.
    if (rows == 8) at_8_rows = most.steps + most.squares;
    CHECK(most.steps + most.squares <= at_8_rows);
  }
}

TEST_CASE("the final table has a line per rank, or for many ranks per stage: time fractions and largest memory") {
  for (const int rows : {2, 64}) {
    CAPTURE(rows);
    actors::TrainerOptions options;
    options.grid = {4, rows};
    options.batch_size = rows;
    const runtime::Grid grid(options.grid, options.grid.ranks());
    std::vector<apps::RankTotals> ranks(static_cast<std::size_t>(options.grid.ranks()));
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      const auto position = grid.position(static_cast<int>(r));
      // The first row of each stage waits for a fifth of its time, all others do not wait.
      ranks[r] = {.seconds = 10, .forward = 2, .backward = 4, .wait = position.row == 0 ? 2.0 : 0.0};
      ranks[r].planned_bytes = static_cast<std::size_t>(100 * position.stage + position.row) << 20;
      ranks[r].peak_resident_bytes = std::size_t{7} << 20;
    }
    const std::vector<std::string> lines = lines_of(apps::end_table(ranks, options));
    std::istringstream words(lines.at(rows == 2 ? 2 + 7 : 2 + 3));  // the last rank, or the last stage
    const std::vector<std::string> cells{std::istream_iterator<std::string>(words), {}};
    if (rows == 2) {
      REQUIRE(lines.size() == 2 + 8 + 1);
      CHECK(cells == std::vector<std::string>{"7", "3", "1", "20.0%", "40.0%", "0.0%", "0.0%", "0.0%", "0.0%",
                                              "0.0%", "301.0", "MiB", "7.0", "MiB"});
    } else {
      REQUIRE(lines.size() == 2 + 4 + 2);
      check_lacks(lines.at(1), {"rank "});
      CHECK(cells == std::vector<std::string>{"3", "64", "20.0%", "40.0%", "0.0%", "0.3%", "0.0%", "0.0%", "0.0%",
                                              "363.0", "MiB", "7.0", "MiB"});
      CHECK(lines.at(6) == "memory: largest rank of the stage");
    }
    CHECK(lines.back().starts_with("stages idle 40.0% of the time; pipeline bubble: "));
  }
}
