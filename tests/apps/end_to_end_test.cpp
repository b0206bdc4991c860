// Complete runs: the grid and the schedule do not change the result, weights move between grids, files are complete.
#include "tests/apps/compared_runs.hpp"
#include "tests/apps/same_tensors.hpp"
#include "tests/models/small_choices.hpp"
#include "tests/models/small_tokenizer.hpp"

using namespace ranvier::tests;
using namespace std::chrono_literals;

// These tests show that flags, files and MPI do not change a result: tests/actors/jobs combine schedules, shardings,
// tiers and precisions in one process.
TEST_CASE_FIXTURE(ComparedRuns,
                  "repetition, stages, schedule, chunks and the split of layers do not change any bit") {
  const Flags files = "--recompute 1 --offload infinity-nvme --bucket-size 3000 --nvme " + disk;
  const auto in_files = [&](const char* more) { return Change{join(more, files), 2}; };
  const TrainedRun run = check_unchanged(1, {},
                                         {{{}},
                                          {"--g-inter 2", 2},
                                          {"--g-inter 3", 3},
                                          {"--g-inter 4", 4},
                                          {"--g-inter 3 --policy message-driven --pipeline-limit 1", 3},
                                          {"--g-inter 3 --policy 1f1b --pipeline-limit 2", 3},
                                          {"--g-inter 3 --policy gpipe --pipeline-limit 5", 3},
                                          {"--g-inter 3 --defer-weights", 3},
                                          {"--g-inter 3 --policy zb-h1 --recompute 1", 3},
                                          {"--g-inter 2 --policy zero-bubble --deferred-limit 1", 2},
                                          in_files("--g-inter 2 --policy zero-bubble"),
                                          in_files("--g-inter 2 --policy zb-h1"),
                                          in_files("--g-inter 2 --chunks-per-rank 2 --policy message-driven"),
                                          in_files("--g-inter 2 --chunks-per-rank 2 --policy 1f1b"),
                                          in_files("--g-inter 2 --chunks-per-rank 2 --policy zero-bubble"),
                                          {"--g-inter 2 --chunks-per-rank 3 --defer-weights", 2},
                                          {"--g-inter 2 --layers-per-stage 1,5", 2},
                                          {"--g-inter 3 --layers-per-stage 3,2,1", 3}});
  CHECK(run.losses.size() == 4);
  for (const std::string& share : metric(metrics, "mfu")) {
    CHECK(std::stod(share) > 0);
    CHECK(std::stod(share) <= 1);
  }
}

TEST_CASE_FIXTURE(ComparedRuns,
                  "stages and recomputation do not change any bit with dropout, rows and in half precision") {
  check_unchanged(1, "--dropout 0.1",
                  {{"--g-inter 2", 2},
                   {"--g-inter 3", 3},
                   {"--g-inter 4", 4},
                   {"--recompute 1"},
                   {"--recompute 2"},
                   {"--recompute 3"},
                   {"--recompute 4"},
                   {"--recompute auto"},
                   {"--recompute auto --g-inter 2", 2}});
  check_unchanged(2, "--g-data 2", {{"--g-inter 2", 4}, {"--g-inter 3 --policy 1f1b", 6}});
  for (const char* precision : {"--precision bf16", "--precision fp16"})
    check_unchanged(1, precision, {{"--g-inter 2", 2}});
}

TEST_CASE_FIXTURE(ComparedRuns,
                  "the location of optimizer states, and the named offload modes, do not change any bit") {
  const Flags grid = "--g-inter 2 --g-data 2", host = "--optimizer-tier host --bucket-size 5000",
              files = "--optimizer-tier nvme --bucket-size 3000 --nvme " + disk;
  check_unchanged(4, join(grid, "--precision fp32"),
                  {{host}, {join(files, "--optimizer-step host --chunk-buckets 1")}});
  check_unchanged(4, join(grid, "--precision bf16 --clip 0"),
                  {{files}, {join(host, "--optimizer-step host --chunk-buckets all")}});
  check_unchanged(4, join(grid, "--precision bf16 --shard zero1"),
                  {{files},
                   {join(files, "--optimizer-step host --optimizer-commit flip")},
                   {join(files, "--optimizer-budget 100KiB")},
                   {join(host, "--optimizer-commit flip --optimizer-budget 100KiB")}});
  check_unchanged(4, join(grid, "--precision bf16 --shard zero1 --moment-dtype int8"),
                  {{host}, {join(files, "--optimizer-step host --optimizer-commit flip")}});
  const Flags sharded = "--g-data 2 --shard zero3 --precision bf16 --recompute 1";
  check_unchanged(2, sharded,
                  {{"--offload myelin --bucket-size 3000"},
                   {"--offload zero-offload --bucket-size 3000"},
                   {"--offload infinity-cpu --bucket-size 3000"},
                   {"--offload infinity-nvme --bucket-size 3000 --nvme " + disk}});
  check_has(ends_well(2, join(files, "--steps 1"), 60s).output, {"files: "});
}

TEST_CASE_FIXTURE(ComparedRuns, "with messages in 8 and 4 bits, stages, schedule and tiers do not change any bit") {
  // Each row is on its own node.
  for (const char* shard : {"zero3", "zero1"}) {
    CAPTURE(std::string(shard));
    check_unchanged(
        2,
        fmt::format("--g-data 2 --node-size 1 --shard {} --precision bf16 --policy 1f1b --all-gather ring "
                    "--gather-dtype inter=int8 --reduce-dtype inter=int4",
                    shard),
        {{"--g-inter 2", 4}, {"--optimizer-tier host --bucket-size 3000"}});
  }
}

TEST_CASE_FIXTURE(
    ComparedRuns,
    "the location of parameters does not change any bit, with and without prefetching, gathered or pulled") {
  const std::vector<Change> tiers{{"--parameter-tier host --prefetch 0 --bucket-size 4000"},
                                  {"--parameter-tier nvme --prefetch 2 --bucket-size 1000000 --nvme " + disk}};
  check_unchanged(1, "--shard ddp", tiers);
  for (const char* grid : {"--g-data 4 --shard zero3 --precision bf16", "--g-data 4 --shard zero++ --group-size 2",
                           "--g-inter 2 --g-data 2 --shard zero3"})
    check_unchanged(4, grid, tiers);
  check_unchanged(4, "--g-data 4 --shard zero++ --group-size 2",
                  {{"--secondary-tier host"},
                   {"--secondary-tier host --parameter-tier nvme --bucket-size 4000 --nvme " + disk}});
}

TEST_CASE_FIXTURE(ComparedRuns,
                  "the location of accumulated gradients does not change any bit, with and without clipping") {
  const std::vector<Change> tiers{
      {"--gradient-tier host --bucket-size 1000000"},
      {"--gradient-tier nvme --optimizer-tier nvme --nvme-checksums on --bucket-size 3000 --nvme " + disk}};
  check_unchanged(1, "--microbatch-size 2", tiers);
  check_unchanged(4, "--g-data 4 --shard zero2 --clip 0.1", tiers);
  check_unchanged(4, "--g-inter 2 --g-data 2 --shard zero1 --precision bf16", tiers);
}

TEST_CASE_FIXTURE(ComparedRuns,
                  "the location of activation checkpoints does not change any bit, under every schedule") {
  const std::string other = make_folder("other");
  const Flags base = "--dropout 0.1 --validation-split 0.1 --eval-every 2 --batch-size 14";
  const Flags host = "--activation-tier host", files = "--activation-tier nvme --nvme " + disk + "," + other,
              with_states = join("--optimizer-tier nvme --bucket-size 3000", files);
  check_unchanged(
      1, base,
      {{join("--recompute 1", host)}, {join("--recompute 2", with_states)}, {join("--recompute auto", files)}});
  for (const auto& [policy, tier] : {std::pair{"message-driven", with_states}, {"1f1b", files}, {"gpipe", host}})
    check_unchanged(4,
                    join(base, fmt::format("--g-data 2 --precision bf16 --g-inter 2 --recompute 1 --policy {} "
                                           "--shard zero3",
                                           policy)),
                    {{tier}});
  CHECK(std::filesystem::is_empty(other));
}

TEST_CASE_FIXTURE(ComparedRuns, "data parallelism and a shorter last microbatch change losses only by rounding") {
  const TrainedRun expected = train(1);
  check_close(train(2, "--g-data 2").losses, expected.losses);
  check_close(train(4, "--g-data 4").losses, expected.losses);
  check_close(train(2, "--microbatch-size 3 --g-inter 2").losses, train(1, "--microbatch-size 4").losses);
}

TEST_CASE_FIXTURE(ComparedRuns, "weights saved by one grid start another") {
  const std::string weights = file("start.safetensors");
  ends_well(4, "--g-inter 2 --save " + weights, 30s);
  const TrainedRun expected = train(1, "--init-from " + weights);
  check_same(expected, 3, "--init-from " + weights + " --g-inter 3");
  CHECK(expected.losses != train(1).losses);
}

TEST_CASE_FIXTURE(ComparedRuns,
                  "weights saved at intermediate steps equal the run's weights at those steps, on any grid") {
  const std::string one = file("one"), four = file("four"), blocked = file("blocked");
  const auto train_into = [&](int ranks, const std::string& save, const Flags& more, int status = 0) {
    const Outcome outcome = require_status(
        status, run(ranks, small_run(text, join("--shard zero2 --save " + save + " --save-every 2", more)), 60s));
    return outcome.output;
  };
  const std::string step = "/weights-00000002";
  // A checkpoint that is due with the same step is written after them.
  train_into(2, one, "--checkpoint " + file("checkpoints") + " --checkpoint-every 2");
  const std::string said = train_into(
      4, four, "--g-inter 2 --save-file-size 20KiB --offload infinity-nvme --nvme " + disk + " --bucket-size 3000");
  check_has(said, {"weights: " + four + step + " ("});
  for (const std::string& name : {std::string(), step}) check_same_tensors(one + name, four + name);
  check_same_tensors(four, four + "/weights-00000004");  // the last step is one of every two
  CHECK(std::filesystem::exists(four + step + "/model.safetensors.index.json"));
  CHECK(std::filesystem::exists(four + step + "/config.json"));
  for (const auto& entry : std::filesystem::directory_iterator(four))
    CHECK_FALSE(entry.path().filename().string().ends_with(".partial"));
  const TrainedRun again = train(1, "--init-from " + four + step);
  check_same(again, 2, "--init-from " + one + step + " --g-inter 2");

  std::filesystem::create_directories(blocked);
  std::ofstream(blocked + step) << "in the way";
  const std::string warned = train_into(2, blocked, {}, 74);
  check_has(warned, {"warning: no weights of step 2: ", "error: outputs are missing: weights of step 2: "});
  check_same_tensors(one, blocked);
}

TEST_CASE_FIXTURE(ComparedRuns, "tiles do not change losses except for rounding, and no bit on another grid") {
  for (const char* shard : {"--g-data 2 --shard ddp", "--g-data 2 --shard zero3"}) {
    const TrainedRun tiled = check_unchanged(
        2, join(shard, "--tile 4"),
        {{"--g-inter 2", 4},
         {"--g-inter 2 --recompute 1 --policy 1f1b", 4},
         {"--g-inter 2 --parameter-tier nvme --optimizer-tier nvme --bucket-size 1000 --nvme " + disk, 4}});
    check_close(train(2, shard).losses, tiled.losses);
  }
}

TEST_CASE_FIXTURE(
    ComparedRuns,
    "every family in tiles starts and trains like undivided models, and its weights are converted both ways") {
  for (const Flags& family : {Flags(), Flags("--model llama --ffn-size 48 --kv-heads 1"),
                              Flags("--model bert --ffn-size 64 --vocab-size 257")}) {
    CAPTURE(family.line());
    const std::string tiled = file("tiled"), undivided = file("undivided"), again = file("again");
    const Flags tiles = "--tile 4 --shard zero3 --g-data 2 --g-inter 2 --parameter-tier nvme --nvme " + disk;
    const TrainedRun whole = train(2, join(family, "--g-data 2"));
    std::filesystem::remove(metrics);
    ends_well(4, join(join(family, tiles), "--metrics " + metrics + " --save " + tiled), 60s);
    check_close(whole.losses, metric(metrics, "loss"));
    // Without a change of the weights.
    const auto convert = [&](int ranks, const Flags& more, const std::string& from, const std::string& to) {
      ends_well(ranks,
                join(join(family, more), "--learning-rate 0 --steps 1 --init-from " + from + " --save " + to), 60s);
      check_same_tensors(from, to);
      CHECK(read_file(from + "/config.json") == read_file(to + "/config.json"));
    };
    convert(1, {}, tiled, undivided);
    convert(4, tiles, undivided, again);
  }
}

TEST_CASE_FIXTURE(ComparedRuns, "an overflow on one rank skips the step on all and halves the scale") {
  const Flags flags = "--precision fp16 --g-inter 2 --metrics " + metrics + " --loss-scale 1024";
  for (int rank = 0; rank < 4; ++rank) {
    std::filesystem::remove(metrics);
    ends_well(4, flags, 30s, {{"RANVIER_FAULT", std::to_string(rank) + ":2:fp16-overflow"}});
    CHECK(metric(metrics, "skipped") == std::vector<std::string>{"false", "true", "false", "false"});
    const auto scales = metric(metrics, "loss_scale");
    CHECK(std::stod(scales.back()) == 512);
  }
}

TEST_CASE_FIXTURE(ComparedRuns, "a dry run shows the plan of a cluster and trains nothing") {
  check_output(
      0,
      run(1, "--dry-run --world 48 --model gpt-12b --g-inter 24 --g-data 2 --batch-size 64 --save " + weights, 20s),
      {"activations", "paro-iig"});
  CHECK_FALSE(std::filesystem::exists(weights));
}

TEST_CASE_FIXTURE(ComparedRuns,
                  "a dry run of a job that does not fit prints flags that would help, and ends with status 1") {
  check_output(1, run(1, "--dry-run --world 8 --layers 8 --hidden 512 --device-memory 128MiB", 20s),
               {"does not fit", "make the job fit (planned):"});
}

TEST_CASE_FIXTURE(ComparedRuns,
                  "ranks with different memory prefetch equally far, as far as the smallest memory allows") {
  const auto flags = [&](const char* memory) {
    return small_run(text,
                     fmt::format("--shard zero3 --hidden 64 --layers 6 --device-memory {} --timeout 5", memory));
  };
  // 4.6 MiB are needed to prefetch two blocks, 3.8 to prefetch none.
  require_status(0, Job({flags("64MiB"), flags("4MiB")}).wait(30s));
}

TEST_CASE_FIXTURE(ComparedRuns, "a config file replaces flags, and flags override it") {
  const std::string sizes = "layers = 4\nhidden = 32\nheads = 2\nsequence-length = 16\nbatch-size = 4\n";
  const std::string config = folder
                                 .write("run.conf", "# a comment\nsteps = 3\ng-inter = 2\n" + sizes +
                                                        "data = " + text + "\nmetrics = " + metrics + "\n")
                                 .string();
  require_status(0, run(2, "--config " + config + " --steps 2", 20s));
  CHECK(metric(metrics, "loss").size() == 2);
}

TEST_CASE_FIXTURE(ComparedRuns, "validation runs as often as requested") {
  const std::string again = file("again.jsonl");
  check_has(ends_well(4, "--g-inter 2 --eval-every 1 --metrics " + metrics + " --save " + weights, 20s).output,
            {"data: 1 file, 1 document, ", "validation loss", " per token, "});
  const auto losses = metric(metrics, "validation_loss"), samples = metric(metrics, "validation_samples");
  REQUIRE(losses.size() == 4);
  // Only the weights, on another grid and with batches of another size: the same samples, the same mean.
  const Flags flags = "--init-from " + weights +
                      " --validation-split 0.1 --batch-size 9 --microbatch-size 2 --metrics " + again +
                      " --eval-only";
  const Outcome alone = ends_well(3, flags, 20s);
  check_has(alone.output, {"evaluation  validation loss "});
  check_lacks(alone.output, {"\nstep "});
  REQUIRE(metric(again, "validation_loss").size() == 1);
  CHECK(metric(again, "validation_samples")[0] == samples[3]);
  CHECK(std::stod(metric(again, "validation_loss")[0]) == doctest::Approx(std::stod(losses[3])).epsilon(1e-6));
}

TEST_CASE_FIXTURE(ComparedRuns,
                  "a model generates text and answers questions during training, which changes no bit") {
  const TrainedRun quiet = train(2, "--g-inter 2");
  const std::string questions =
      folder
          .write("questions.bin",
                 question_file({{{110, 111}, {{100, 101}, {1, 2, 3}}, 0}, {{32}, {{97}, {255}, {0, 1}}, 1}}))
          .string();
  std::filesystem::remove(metrics);
  const Outcome outcome =
      ends_well(2,
                {"--g-inter", "2", "--metrics", metrics, "--save", saved, "--hellaswag", questions,
                 "--sample-every", "3", "--sample-prompt", "\"node\" ", "--sample-tokens", "4"},
                20s);
  check_has(outcome.output,
            {"step 3/4  sample:\n\"node\" ", "step 4/4  sample:\n\"node\" ", "step 4/4  HellaSwag "});
  CHECK(metric(metrics, "loss") == quiet.losses);
  CHECK((read_file(saved + "/model.safetensors") == quiet.weights));
  const auto lines = lines_of(read_file(metrics));
  check_lacks(lines[1], {"\"sample\""});
  check_has(lines[2], {R"("sample":"\"node\" )"});
  check_lacks(lines[2], {"hellaswag_accuracy"});
  check_has(lines[3], {R"("hellaswag_accuracy":)", R"("sample":"\"node\" )"});

  // Only the questions, without data.
  const std::string again = file("again.jsonl");
  check_lacks(
      require_status(
          0, run(2, "--init-from " + saved + " --hellaswag " + questions + " --eval-only --metrics " + again, 20s))
          .output,
      {"validation loss"});
  const auto accuracy = metric(again, "hellaswag_accuracy");
  REQUIRE(accuracy.size() == 1);
  check_has(lines[3], {"\"hellaswag_accuracy\":" + accuracy[0]});
}

TEST_CASE_FIXTURE(ComparedRuns,
                  "a named tokenizer gives per-byte losses, text samples, and the end of text in saved weights") {
  const SmallTokenizer small;
  std::vector<std::uint16_t> tokens;
  for (int i = 0; i < 800; ++i) {
    for (const std::int32_t token : small.encoded("the world "))
      tokens.push_back(static_cast<std::uint16_t>(token));
  }
  const std::string data = folder.write("tokens.bin", token_file(tokens)).string();
  const std::string tokenizer = "gpt2:" + folder.write("tokenizer.json", small.tokenizer_json()).string();
  const Outcome outcome = require_status(
      0, run(2,
             small_run(data, {"--tokenizer", tokenizer, "--vocab-size", "285", "--eval-every", "4",
                              "--sample-every", "4", "--sample-prompt", "the world", "--save", file("saved")}),
             20s));
  check_has(read_file(file("saved/generation_config.json")), {"\"eos_token_id\": 284"});
  check_has(outcome.output, {" per byte  over ", "step 4/4  sample:\nthe world"});
}

TEST_CASE_FIXTURE(ComparedRuns, "a trace names what every rank did") {
  const std::string trace = file("trace.json");
  ends_well(4, "--g-inter 2 --trace " + trace + " --eval-every 2 --sample-every 4", 20s);
  const std::string events = read_file(trace);
  check_has(events, {"traceEvents"});
  check_has(events, {"forward", "backward", "send", "receive", "wait", "reduce", "optimizer", "\"step 4\"",
                     "\"validation 2\"", "validation forward", "\"sampling 4\"", "sampling forward"});
}

TEST_CASE_FIXTURE(ComparedRuns, "bytes that a rank reads from its own files are separate from bytes over links") {
  const std::string trace = file("trace.json");
  const auto traced = [&](int ranks, const Flags& more) {
    const Outcome outcome =
        ends_well(ranks, join("--trace " + trace + " --nvme " + folder.path().string(), more), 30s);
    return std::pair(outcome.output, read_file(trace));
  };
  const auto [said, alone] = traced(1, "--offload infinity-nvme");
  check_has(alone, {R"("cat":"load")"});
  check_lacks(alone, {R"("cat":"gather")"});
  check_has(said, {"  file wait  "});
  const auto [said_of_both, both] = traced(2, "--optimizer-tier nvme --shard zero3");
  check_has(both, {R"("cat":"load")", R"("cat":"gather")"});
}
