#include "apps/options/train_options.hpp"

#include "apps/memory/job_plan.hpp"
#include "runtime/device/cuda_build.hpp"
#include "tests/apps/train_flags.hpp"

using namespace ranvier;
using namespace ranvier::apps;
using namespace ranvier::tests;
using runtime::DType;

TEST_CASE("a data file is enough for a run: a small model of bytes, one row per rank") {
  const auto options = parse_train("--data text.txt");
  CHECK(options.run.request == Request::train);
  check_values(options,
               "--layers 6 --vocab-size 256 --g-inter 1 --g-data 4 --batch-size 16 --microbatch-size 4 "
               "--pipeline-limit 1 --tokenizer bytes --validation-split 0 --warmup-steps 50 "
               "--min-learning-rate 6e-05 --loss-scale 1");
}

TEST_CASE("the reference's AdamW is the default") {
  check_resolved({}, "--beta1 0.9 --beta2 0.95 --epsilon 1e-08 --weight-decay 0.1 --clip 1");
}

TEST_CASE("an offload mode places all states, flags override it in any order, and checkpoints need recomputation") {
  check_resolved("--offload infinity-nvme --nvme /tmp --recompute 1",
                 "--parameter-tier nvme --optimizer-tier nvme --gradient-tier nvme --activation-tier host");
  check_resolved("--offload zero-offload", "--gradient-tier host");
  check_resolved("--offload myelin", "--gradient-tier device --optimizer-tier host --parameter-tier device");
  check_resolved("--offload infinity-cpu", "--activation-tier device --parameter-tier host");
  check_resolved("--parameter-tier device --offload infinity-cpu", "--parameter-tier device");
  check_resolved({}, "--optimizer-tier device");
  refused_train("--offload infinity-nvme", "--offload infinity-nvme needs directories; add --nvme");
  for (const std::string& flag : Flags("--optimizer-tier --parameter-tier --gradient-tier --activation-tier"))
    refused_train(flag + " nvme --recompute 1", flag + " nvme needs directories; add --nvme");
  refused_train("--nvme /tmp", "--nvme /tmp has no effect without states in files; add --optimizer-tier nvme");
  refused_train("--optimizer-step host", {"--optimizer-step host", "add --optimizer-tier host"});
  refused_train("--optimizer-tier disk", {"--optimizer-tier is invalid: disk;", "nvme"});
  check_resolved("--offload myelin --optimizer-budget 1GiB", "--optimizer-tier host --optimizer-budget 1GiB");
  check_resolved("--offload myelin", "--optimizer-budget 0");
  refused_train("--offload myelin --optimizer-budget half", {"--optimizer-budget is invalid: half;", "512MiB"});
  check_resolved("--shard zero++", "--secondary-tier same");
  check_resolved("--shard zero++ --secondary-tier host --offload myelin", "--secondary-tier host");
  refused_train("--shard zero++ --secondary-tier nvme", {"--secondary-tier is invalid: nvme;", "host"});
  refused_train("--chunk-buckets none", {"--chunk-buckets is invalid: none;", "all"});
  refused_train("--offload infinity", "infinity-cpu");
  check_resolved("--offload infinity-cpu --optimizer-tier device",
                 "--offload infinity-cpu --parameter-tier host --optimizer-tier device");
}

TEST_CASE("a preset sets all sizes, and flags override it in any order") {
  check_resolved("--layers 3 --model gpt2-medium --data a.bin",
                 "--model gpt2-medium --layers 3 --hidden 1024 --vocab-size 50257 --sequence-length 1024");
}

TEST_CASE("the grid follows from the ranks, and must match them") {
  check_resolved("--g-inter 2", "--g-data 3 --batch-size 18", 6);
  check_resolved("--g-inter 4 --g-data 1", "--pipeline-limit 4");
  // Limits of chunks follow from the order of their passes.
  check_resolved("--g-inter 4 --g-data 1 --chunks-per-rank 2", "--chunks-per-rank 2 --pipeline-limit 0");
  refused_train("--chunks-per-rank 0", "--chunks-per-rank is invalid: 0;");
  refused_train("--g-inter 3", "--g-inter 3 does not divide the number of ranks, 4");
  refused_train("--g-inter 2 --g-data 3",
                "--g-inter 2 x --g-data 3 needs 6 ranks, but the job has 4; use mpirun -n 6");
  refused_train("--g-inter 0", "--g-inter is invalid: 0;");
  refused_train("--g-inter 4 --layers 3", "--g-inter 4 is more stages than --layers 3");
  refused_train("--g-data 4 --batch-size 5",
                "--batch-size 5 is not divisible by --g-data 4; use a multiple, such as 8");
}

TEST_CASE("a dry run may simulate its ranks and needs no data") {
  const auto options = parse_train("--dry-run --world 48 --g-inter 6", 1);
  CHECK(options.run.request == Request::dry_run);
  CHECK(options.ranks == 48);
  CHECK(options.trainer.grid.g_data == 8);
  refused_train("--world 8", "add --dry-run");
}

TEST_CASE("ranks are on the nodes that MPI reports, unless --node-size simulates some") {
  const std::vector<int> asked{0, 0, 2, 2};
  CHECK(nodes_of(parse_train("--data a"), asked) == asked);
  CHECK(nodes_of(parse_train("--data a --node-size 3"), asked) == std::vector{0, 0, 0, 1});
  CHECK(parse_train("--dry-run --world 64").shard.node_size == 8);
  CHECK(parse_train("--dry-run --world 6").shard.node_size == 6);
  CHECK(nodes_of(parse_train("--dry-run --world 4 --node-size 2", 1), std::vector{0}) == std::vector{0, 0, 1, 1});
}

TEST_CASE("algorithms are auto or one of their collective's") {
  check_resolved({}, "--all-gather auto --prefetch auto");
  const Flags named = "--all-gather ho-ring --reduce-scatter hierarchical --all-reduce torus --prefetch 0";
  check_resolved(named, named);
  CHECK(parse_train(join(named, "--data a")).trainer.prefetch == 0);
  refused_train("--all-gather torus", "one of auto, ring, recursive, hierarchical, h-ring, ho-ring");
  refused_train("--reduce-scatter tree", {"--reduce-scatter is invalid: tree;", "h-ring"});
  refused_train("--all-reduce h-ring", "one of auto, ring, recursive, hierarchical, torus, ho-ring");
  for (const char* wrong : {"-1", "some"})
    refused_train(fmt::format("--prefetch {}", wrong), "a number of units, 0 for none, or auto");
}

TEST_CASE("the hash of options covers the rates of links") {
  const TemporaryFolder folder;
  const auto path = (folder.path() / "links.json").string();
  const auto hash_with = [&](const char* latency) {
    const std::string link = fmt::format(
        R"({{"latency_seconds": {}, "bytes_per_second": 6e9, "node_bytes_per_second": 12e9}})", latency);
    folder.write("links.json", fmt::format(R"({{"intra_node": {}, "inter_node": {}}})", link, link));
    const auto options = parse_train("--data a --links " + path);
    CHECK(options.trainer.links.intra_node.bytes_per_second == 6e9);
    return options_hash(options);
  };
  CHECK(hash_with("1e-6") == hash_with("1e-6"));
  CHECK(hash_with("1e-6") != hash_with("2e-6"));
  refused_train("--links " + (folder.path() / "none.json").string(), "none.json: cannot read");
  folder.write("links.json", "{}");
  refused_train("--links " + path, "has no link class");
}

TEST_CASE("the batch is divisible by the rows") {
  refused_train("--batch-size 6", "--batch-size 6 is not divisible by --g-data 4; use a multiple, such as 8");
  check_resolved("--batch-size 8", "--microbatch-size 2");
  check_resolved("--batch-size 8 --microbatch-size 3", "--microbatch-size 2");
  check_resolved("--batch-size 40 --microbatch-size 3", "--microbatch-size 3");
}

TEST_CASE("named values are read, and unknown ones are refused") {
  for (const Flags flags :
       {"--policy 1f1b --recompute 3 --lr-decay linear --shuffle off --device inline", "--device-memory 512MiB",
        "--saved-activations all", "--layers-per-stage auto", "--policy zero-bubble --deferred-limit 3"})
    check_resolved(flags, flags);
  CHECK(parse_train("--data a --recompute auto").trainer.recompute_auto);
  const auto off = parse_train("--data a --recompute off").trainer;
  CHECK((off.recompute == 0 && !off.recompute_auto));
  check_resolved({}, "--saved-activations auto --deferred-limit auto --layers-per-stage auto --rebalance off");
  check_resolved("--defer-weights", "--defer-weights on");
  const auto split = parse_train("--data a --layers-per-stage 7,12,6 --rebalance").trainer;
  CHECK(split.layers_per_stage == std::vector<int>{7, 12, 6});
  CHECK(split.rebalance_steps > 0);

  for (const char* wrong : {"", "3,", ",3", "3,0", "3;4", "3,four"})
    refused_train({"--layers-per-stage", wrong}, "a number of layers above 0 for each stage, as in 7,7,6, or auto");
  refused_train("--policy 1f2b", "one of message-driven, 1f1b, gpipe, zero-bubble, zb-h1");
  refused_train("--deferred-limit -1", "a number of microbatches, 0 for none, or auto");
  refused_train("--recompute 0", "a number of layers, auto or off");
  refused_train("--saved-activations some", "one of auto, few, all");
  refused_train("--model gpt3", "gpt2-small");
  refused_train("--stpes 3", "did you mean --steps?");
  refused_train("--layers many", "--layers is invalid: many;");
  refused_train("--dropout 1.5", "--dropout is invalid: 1.5;");
  refused_train("--precision fp8", {"--precision is invalid: fp8;", "bf16"});
  refused_train({"--device-memory", "12 bananas"}, {"--device-memory is invalid: ", "12 bananas"});
  refused_train("--plan best", "--plan is invalid: best; use one of none, auto");
  refused_train("--node-size two", "--node-size is invalid: two;");
}

TEST_CASE("other programs' names of a flag are answered with the flag") {
  refused_train("--lr 1e-3", "unknown flag --lr: did you mean --learning-rate?");
  refused_train("--max_steps=3", "did you mean --steps?");
  refused_train("--bf16", "did you mean --precision bf16?");
  refused_train("--tensor-model-parallel-size 2", "tensor parallelism is not supported: use --g-inter");
  const TemporaryFolder folder;
  const std::string config = folder.write("run.conf", "bf16 = true\n").string();
  refused_train(fmt::format("--config {}", config), "did you mean precision = bf16?");

  const std::vector<apps::OptionInfo> flags = train_manual("ranvier-train").options;
  const auto find = [&](std::string_view name) {
    return std::find_if(flags.begin(), flags.end(), [&](const auto& flag) { return flag.name == name; });
  };
  std::set<std::string> seen;
  for (const apps::OptionInfo& flag : flags) {
    std::istringstream names{std::string(apps::traits_of(flag.name).also)};
    for (std::string name; names >> name;) {
      CAPTURE(name);
      const std::size_t equals = std::min(name.find('='), name.size());
      const std::string other = name.substr(0, equals);
      CHECK(seen.insert(other).second);
      CHECK(find(other) == flags.end());
      CHECK(train_table().advice_on_other_name(other, false));
      if (equals == name.size()) continue;
      CHECK(std::find(flag.words.begin(), flag.words.end(), name.substr(equals + 1)) != flag.words.end());
    }
  }
  CHECK(seen.size() > 100);
}

TEST_CASE("-h requests help, and is an ordinary value after a flag") {
  CHECK(parse_train({"--data", "a", "-h"}).run.info.help);
  CHECK(parse_train("--data a --sample-prompt -h").data.sample_prompt == "-h");
  refused_train("-x", "unexpected argument '-x'");
}

TEST_CASE("a GPU is chosen by its number or round-robin, in a build with CUDA") {
  if constexpr (runtime::with_cuda) {
    CHECK(parse_train("--data a").device.device == DeviceFlag::cpu);
    const auto in_turn = parse_train("--data a --device cuda").device;
    CHECK(in_turn.device == DeviceFlag::cuda);
    CHECK_FALSE(in_turn.gpu.has_value());
    CHECK(in_turn.point_to_point == PointToPoint::automatic);
    const auto third = parse_train("--data a --device cuda:3 --p2p staged").device;
    CHECK(third.gpu == 3);
    CHECK(third.point_to_point == PointToPoint::staged);
    CHECK(third.measures_products);
    CHECK_FALSE(parse_train("--data a --device cuda --products first").device.measures_products);
    CHECK_FALSE(third.fast_attention_backward);
    CHECK(parse_train("--data a --device cuda --attention-backward fast").device.fast_attention_backward);
    refused_train("--device cuda:", "cuda or cuda:N");
    refused_train("--device cuda:-1", "cuda or cuda:N");
    refused_train("--device cuda0", "cuda or cuda:N");
    refused_train("--device gpu", "cpu, inline, cuda or cuda:N");
  } else {
    refused_train("--device cuda", "this build has no CUDA device");
    refused_train("--device gpu", "cpu or inline");
  }
  refused_train("--p2p pigeon", "auto, staged, direct");
  refused_train("--products fastest", "measured, first");
  refused_train("--attention-backward slow", "deterministic, fast");
}

TEST_CASE("a file of measured products is accepted for runs that measure") {
  refused_train("--products-file p.json --precision bf16", "--products-file p.json has no effect without a GPU");
  if constexpr (runtime::with_cuda) {
    CHECK(parse_train("--data a --device cuda --precision bf16 --products-file p.json").device.products_file ==
          "p.json");
    refused_train("--device cuda --products-file p.json", "in fp32, which is never measured");
    refused_train("--device cuda --products-file p.json --precision fp16 --products first",
                  "--products-file p.json has no effect with --products first");
  }
}

TEST_CASE("rates outside their ranges are refused") {
  refused_train("--dropout 1", "--dropout is invalid: 1;");
  refused_train("--learning-rate -1", "--learning-rate is invalid: -1;");
  refused_train("--learning-rate 1e400",
                "--learning-rate is invalid: 1e400; use a number that is not out of range");
  refused_train("--beta2 1", "--beta2 is invalid: 1;");
  refused_train("--clip nan", "--clip is invalid: nan;");
  refused_train("--timeout 0", "--timeout 0");
  refused_train("--validation-split 1", "--validation-split is invalid: 1;");
  refused_train("--min-learning-rate 1 --learning-rate 0.1", "is above --learning-rate 0.1");
  CHECK(parse_train("--hidden 64").model.gpt().heads == 1);
  CHECK(parse_train("--hidden 200").model.gpt().heads == 2);
  CHECK(parse_train("--data a").model.gpt().tile == 1);
  CHECK(parse_train("--data a --tile 8").model.gpt().tile == 8);
  CHECK(parse_train("--data a.bin --model gpt2-small --tile 3").model.gpt().tile == 3);
  refused_train("--tile 7", "--tile 7 does not divide --hidden 384; use a divisor such as 6");
  refused_train("--tile 0", "--tile");
  refused_train("--heads 7", "--heads 7 does not divide --hidden 384; use a divisor such as 6");
}

TEST_CASE("defaults that follow from other flags stay as in a checkpoint") {
  const RunDefaults defaults{
      .recorded = {{"batch-size", "12"}, {"warmup-steps", "7"}, {"min-learning-rate", "0.0003"}}};
  const auto with = [&](const Flags& flags) {
    return parse_train(join("--data a --steps 600 --learning-rate 0.01", flags), 4, defaults);
  };
  check_values(with({}), "--batch-size 12 --warmup-steps 7 --min-learning-rate 0.0003");
  const Flags given = "--batch-size 16 --warmup-steps 60 --min-learning-rate 0";
  check_values(with(given), given);
}

TEST_CASE("the update rule sets its default momentum and the optimizer's states") {
  const auto tiers = [](const Flags& flags) { return parse_train(with_data(flags)).trainer.tiers; };
  check_resolved({}, "--optimizer adamw --muon-learning-rate same");
  check_resolved("--optimizer sgd", "--momentum 0.9");
  check_resolved("--optimizer muon --muon-learning-rate 0.02", "--momentum 0.95 --muon-learning-rate 0.02");
  check_resolved("--momentum 0.5 --optimizer sgd", "--momentum 0.5");
  CHECK(tiers("--momentum 0").arrays_of(true) == 3);
  CHECK(tiers("--optimizer muon").arrays_of(true) == 3);
  CHECK(tiers("--optimizer sgd").arrays_of(true) == 2);
  CHECK(tiers("--optimizer sgd --momentum 0").arrays_of(true) == 1);
  CHECK(parse_train(with_data("--optimizer muon --muon-learning-rate 0.02")).trainer.learning_rate.muon_peak ==
        0.02);
  refused_train("--optimizer adam", {"--optimizer is invalid: adam;", "adamw", "muon", "sgd"});
  refused_train("--optim sgd", "did you mean --optimizer?");
  refused_train("--momentum 1", "--momentum is invalid: 1;");
  refused_train("--muon-learning-rate 0", {"--muon-learning-rate is invalid: 0;", "a number above 0, or same"});
  refused_train("--optimizer muon --muon-learning-rate 0.02 --learning-rate 0",
                {"--muon-learning-rate 0.02", "--learning-rate above 0"});
  refused_train("--optimizer muon --tile 2", {"--optimizer muon", "--tile 2", "remove --tile"});
  check_resolved("--optimizer sgd --tile 2", "--tile 2");
}

TEST_CASE("precision, gradients and loss scale must be compatible") {
  CHECK(parse_train("--data a --precision fp16").trainer.loss_scale.scale == 65536);
  const auto half = parse_train("--data a --precision bf16 --gradient-dtype half");
  CHECK(half.trainer.precision.gradient == DType::bf16);
  CHECK(half.model.gpt().precision.compute == DType::bf16);
  CHECK(parse_train("--data a --precision bf16").trainer.precision.gradient == DType::f32);
  refused_train("--gradient-dtype half", "--precision bf16 or fp16");
  CHECK(parse_train("--data a --moment-dtype bf16").trainer.tiers.moments == DType::bf16);
  CHECK(parse_train("--data a --moment-dtype int8").trainer.tiers.moments == DType::i8);
  refused_train("--moment-dtype fp16", "--moment-dtype is invalid: fp16; use one of fp32, bf16, int8");
  refused_train("--master-dtype int8", "--master-dtype is invalid: int8; use one of fp32, bf16");
  refused_train("--loss-scale 8", "no effect in fp32");
}

TEST_CASE("flags with a list of values set their own field") {
  const TrainOptions options = parse_train(
      "--data a --all-gather ho-ring --reduce-scatter hierarchical --all-reduce torus --policy zero-bubble "
      "--deferred-limit 3 --lr-decay linear --device inline --saved-activations all --bad-steps rollback "
      "--bad-steps-limit 3 --spike-factor 2.5 --check-every 50 --checkpoint c --checkpoint-every 500 "
      "--token-format jsonl --json-field body --documents mask");
  const actors::TrainerOptions& trainer = options.trainer;
  CHECK(trainer.algorithms.all_gather == "ho-ring");
  CHECK(trainer.algorithms.reduce_scatter == "hierarchical");
  CHECK(trainer.algorithms.all_reduce == "torus");
  CHECK(trainer.policy == actors::Policy::zero_bubble);
  CHECK(trainer.deferred_limit == 3);
  CHECK(trainer.learning_rate.decay == actors::LearningRateOptions::Decay::linear);
  CHECK(trainer.saved_activations == models::SavedActivations::all);
  CHECK(trainer.bad_steps.action == actors::BadStepOptions::Action::rollback);
  CHECK(trainer.bad_steps.limit == 3);
  CHECK(trainer.bad_steps.spike_factor == 2.5);
  CHECK(trainer.check_every == 50);
  CHECK(options.device.device == DeviceFlag::inline_);
  CHECK(options.checkpoint.every_steps == 500);
  CHECK_FALSE(options.checkpoint.every_time);
  CHECK(options.data.reading.format == models::TokenFormat::jsonl);
  CHECK(options.data.documents == models::Documents::mask);
  CHECK(parse_train("--data a --policy 1f1b").trainer.policy == actors::Policy::one_f_one_b);
  CHECK(parse_train("--data a --token-format megatron").data.reading.format == models::TokenFormat::megatron);
}

TEST_CASE("bad steps end the job unless they are skipped or rolled back") {
  check_resolved({}, "--bad-steps stop");
  const Flags given = "--bad-steps rollback --bad-steps-limit 3 --spike-factor 2.5 --checkpoint c --check-every 50";
  check_resolved(given, given);
  refused_train("--spike-factor 0.9", "a number above 1, or 0");
  refused_train("--bad-steps ignore", "stop, skip, rollback");
  refused_train("--bad-steps rollback", "--bad-steps rollback needs checkpoints; add --checkpoint");
}

TEST_CASE("checkpoints are written by steps or by time, and a resumed run needs to know from where") {
  const auto plain = parse_train("--data a");
  CHECK(plain.checkpoint.folder.empty());
  CHECK(plain.trainer.checkpoint_staging == 0);
  const auto by_time = parse_train("--data a --checkpoint c");
  check_values(by_time, "--checkpoint-every 30m");
  CHECK(by_time.trainer.checkpoint_staging > 0);
  check_resolved(
      "--checkpoint c --checkpoint-every 500 --resume auto --resume-with --steps,clip --checkpoint-rate 200MiB "
      "--time-limit 1h",
      "--checkpoint-every 500 --resume-with steps,clip --stop-before 5m");
  check_resolved("--time-limit 20m", "--stop-before 2m");
  refused_train("--checkpoint c --checkpoint-every often", "a number of steps, such as 500, or a time");
  refused_train("--resume auto", "--resume auto needs a checkpoint folder; add --checkpoint");
  refused_train("--checkpoint c --resume auto --resume-with lerning-rate", "did you mean learning-rate?");
  refused_train("--time-limit 3m --stop-before 3m", "--stop-before 3m is not shorter than --time-limit 3m");
  refused_train("--eval-only --init-from w --checkpoint c", "--checkpoint c has no effect with --eval-only");
  const auto notes = parse_train("--data a --checkpoint-keep 5 --stop-before 3m").notes;
  CHECK(std::any_of(notes.begin(), notes.end(), [](const std::string& note) {
    return note.find("--checkpoint-keep 5 has no effect without --checkpoint") != std::string::npos;
  }));
}

TEST_CASE("resolved options give the same text, and parsing it again gives the same run") {
  const TemporaryFolder folder;
  const auto options =
      parse_train({"--data",       "a b.bin", "--model",     "gpt2-small", "--g-inter",        "2",
                   "--recompute",  "auto",    "--precision", "fp16",       "--gradient-dtype", "half",
                   "--eval-every", "5",       "--dropout",   "0.1",        "--shard",          "IGN",
                   "--all-gather", "ring",    "--prefetch",  "3",          "--learning-rate",  "0.00025"});
  std::string config;
  for (const auto& [name, value] : resolved_map(options))
    if (!value.empty() && name != "world") config += name + " = " + value + "\n";
  const auto path = folder.write("run.conf", config);
  auto again = parse_train("--config " + path.string());
  CHECK(options_hash(again) == options_hash(options));
  again.run.config.clear();
  CHECK(resolved_map(again) == resolved_map(options));
}

TEST_CASE("the hash depends on all options except per-rank ones") {
  const auto hash = options_hash(parse_train("--data a"));
  CHECK(options_hash(parse_train("--data a --threads 3 --device-memory 1GiB")) == hash);
  CHECK(options_hash(parse_train("--data a --seed 3")) != hash);
  CHECK(options_hash(parse_train("--data a --save w")) != hash);
  CHECK(options_hash(parse_train("--data a", 8)) != hash);
}

TEST_CASE("help and version work even if required flags are missing") {
  CHECK(parse_train("--help").run.request == Request::info);
  CHECK(parse_train("--help").run.info.help);
  CHECK(parse_train("--version --g-inter 9").run.info.version);
  CHECK(parse_train("--completion zsh").run.info.completion == Shell::zsh);
  CHECK(parse_train("--g-inter 9 --man").run.info.man);
  refused_train("--completion fish", "--completion is invalid: fish; use one of bash, zsh, none");
  const std::string help = help_text(train_manual("ranvier-train"), "all");
  for (const auto& option : resolved(parse_train("--data a"))) check_has(help, {"--" + option.name});
}

TEST_CASE("flags without effect are reported, with the reason") {
  const auto notes = [](const Flags& flags, int ranks = 4) {
    return parse_train(join(flags, "--data text.txt"), ranks).notes;
  };
  CHECK(notes("--shard zero3 --prefetch 1 --lr-decay linear --min-learning-rate 1e-5").empty());
  CHECK(notes("--lr-decay constant --min-learning-rate 1e-5") ==
        std::vector<std::string>{"note: --min-learning-rate 1e-05 has no effect with --lr-decay constant"});
  CHECK(notes("--momentum 0.5 --muon-learning-rate 0.1") ==
        std::vector<std::string>{"note: --muon-learning-rate 0.1 has no effect without --optimizer muon",
                                 "note: --momentum 0.5 has no effect with --optimizer adamw"});
  CHECK(notes("--optimizer sgd --beta1 0.8 --beta2 0.9 --epsilon 1e-6").size() == 3);
  CHECK(notes("--optimizer muon --beta1 0.8 --momentum 0.5 --muon-learning-rate 0.1").empty());
  CHECK(notes("--sample-prompt Once --sample-tokens 9") ==
        std::vector<std::string>{"note: --sample-prompt Once has no effect without --sample-every",
                                 "note: --sample-tokens 9 has no effect without --sample-every"});
  CHECK(notes("--steps 10 --warmup-steps 40 --learning-rate 0.004") ==
        std::vector<std::string>{
            "note: --warmup-steps 40 exceeds --steps 10: the learning rate reaches 0.001 instead of 0.004"});
  CHECK(notes("--shard zero3", 1).size() == 1);
  CHECK(notes("--prefetch 1").size() == 1);
  CHECK(notes("--prefetch 1 --parameter-tier host").empty());
  CHECK(notes("--cuda-graphs off --p2p staged").size() == 2);
  CHECK(notes("--optimizer-budget 1GiB") ==
        std::vector<std::string>{"note: --optimizer-budget 1GiB has no effect if all optimizer states are on the "
                                 "device; add --optimizer-tier host"});
  CHECK(notes("--optimizer-budget 1GiB --offload myelin").empty());
  CHECK(notes("--secondary-tier host --shard zero3") ==
        std::vector<std::string>{"note: --secondary-tier host has no effect without --shard zero++"});
  CHECK(notes("--secondary-tier host --shard zero++").empty());
  CHECK(notes("--bad-steps-limit 3") ==
        std::vector<std::string>{"note: --bad-steps-limit 3 has no effect with --bad-steps stop, which ends the "
                                 "job at the first bad step"});
  CHECK(
      notes("--check-every 3", 1) ==
      std::vector<std::string>{"note: --check-every 3 has no effect with one rank, whose states have no replicas"});
  // The decision about a step comes late then, also without clipping.
  CHECK(notes("--clip 0 --offload infinity-cpu --optimizer-commit flip").size() == 1);
  CHECK(notes("--clip 0 --offload infinity-cpu --optimizer-commit flip --bad-steps skip").empty());
}

TEST_CASE("adapters come from flags or from a folder, and contradictions are refused") {
  const TemporaryFolder folder;
  const std::string adapter = folder.path().string(), saved = adapter + "/saved-1.5";
  const auto options = parse_train(fmt::format(
      "--data text.txt --model llama --lora-rank 4 --lora-targets up_proj,o_proj,up_proj --save {}", saved));
  CHECK(options.model.adapts());
  check_values(options, "--lora-alpha 8 --lora-targets o_proj,up_proj");
  CHECK(options.run.save == saved + "/adapter_model.safetensors");
  CHECK_FALSE(parse_train("--data text.txt").model.adapts());

  folder.write("adapter_config.json",
               R"({"peft_type":"LORA","r":16,"lora_alpha":32,"lora_dropout":0.1,"target_modules":["k_proj"]})");
  check_resolved("--init-adapter " + adapter + " --lora-dropout 0",
                 "--lora-rank 16 --lora-alpha 32 --lora-dropout 0 --lora-targets k_proj");
  refused_train(fmt::format("--init-adapter {} --lora-rank 4", adapter), "has rank 16 and targets k_proj");
  refused_train("--lora-rank 4 --train norm", "--train has no effect with --lora-rank 4");
  refused_train("--lora-rank 4 --save weights.safetensors", "--save weights.safetensors is a file");
  refused_train("--lora-rank 4 --lora-alpha 0", "--lora-alpha 0");
  refused_train("--lora-targets q_proj,,v_proj", "names separated by commas");
  const auto whole = [](const Flags& more) {
    return resolved_map(parse_train(join(more, "--dry-run --classes 3 --lora-rank 4"))).at("lora-whole");
  };
  CHECK(whole("--model bert") == "classifier,pooler");
  CHECK(whole("--model bert --lora-whole none") == "none");
  CHECK(whole("--model roberta") == "classifier");
  CHECK(parse_train("--data text.txt --lora-alpha 4").notes ==
        std::vector<std::string>{"note: --lora-alpha 4 has no effect without --lora-rank"});
}
