#include "apps/train/options/train_options.hpp"

#include "apps/train/plan/nodes.hpp"
#include "runtime/cuda_build.hpp"
#include "runtime/error.hpp"
#include "tests/errors.hpp"
#include "tests/temporary_folder.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <vector>

using namespace ranvier;
using namespace ranvier::apps;
using ranvier::tests::error_of;
using ranvier::tests::says;
using ranvier::tests::TemporaryFolder;
using runtime::DType;

namespace {

TrainOptions parse(std::vector<const char*> arguments, int ranks = 4) {
  arguments.insert(arguments.begin(), "ranvier-train");
  return parse_train_options(static_cast<int>(arguments.size()), arguments.data(), ranks);
}

void refused(std::vector<const char*> arguments, std::string_view words) {
  arguments.insert(arguments.end(), {"--data", "text.txt"});
  const auto error = error_of([&] { static_cast<void>(parse(arguments)); });
  CHECK(error.code() == ErrorCode::usage);
  CHECK(says(error, words));
}

std::map<std::string, std::string> resolved_map(const TrainOptions& options) {
  std::map<std::string, std::string> all;
  for (const auto& option : resolved(options)) all[option.name] = option.value;
  return all;
}

}  // namespace

TEST_CASE("a data file alone makes a run: a small model of bytes, one row per rank") {
  const auto options = parse({"--data", "text.txt"});
  CHECK(options.run.request == Request::train);
  CHECK(options.model.gpt().layers == 6);
  CHECK(options.model.gpt().vocab_size == 256);
  CHECK(options.trainer.grid.g_inter == 1);
  CHECK(options.trainer.grid.g_data == 4);
  CHECK(options.trainer.batch_size == 16);
  CHECK(options.trainer.microbatch_size == 4);
  CHECK(options.trainer.pipeline_limit == 1);
  CHECK(options.data.tokenizer == Tokenizer::bytes);
  CHECK(options.data.validation_split == 0);
  CHECK(options.trainer.learning_rate.warmup_steps == 50);
  CHECK(options.trainer.learning_rate.least == doctest::Approx(6e-5));
  CHECK(options.trainer.loss_scale.scale == 1);
}

TEST_CASE("the reference's AdamW is the default") {
  const actors::TrainerOptions trainer = parse({"--data", "a"}).trainer;
  CHECK(trainer.adamw.beta1 == 0.9);
  CHECK(trainer.adamw.beta2 == 0.95);
  CHECK(trainer.adamw.epsilon == 1e-8);
  CHECK(trainer.adamw.weight_decay == 0.1);
  CHECK(trainer.clip == 1.0);
}

TEST_CASE("a name places all states, flags override it wherever they stand, and checkpoints need recomputation") {
  using enum actors::TierKind;
  const auto tiers = [](std::vector<const char*> more) {
    more.insert(more.end(), {"--data", "a"});
    return parse(more).trainer.tiers;
  };
  const auto infinity = tiers({"--offload", "infinity-nvme", "--nvme", "/tmp", "--recompute", "1"});
  CHECK(infinity.parameters == nvme);
  CHECK(infinity.optimizer == nvme);
  CHECK(infinity.gradients == nvme);
  CHECK(infinity.activations == host);
  CHECK(tiers({"--offload", "zero-offload"}).gradients == host);
  CHECK(tiers({"--offload", "myelin"}).gradients == device);
  CHECK(tiers({"--offload", "infinity-cpu"}).activations == device);
  CHECK(tiers({"--offload", "infinity-cpu"}).parameters == host);
  CHECK(tiers({"--offload", "myelin"}).optimizer == host);
  CHECK(tiers({"--offload", "myelin"}).parameters == device);
  CHECK(tiers({"--parameter-tier", "device", "--offload", "infinity-cpu"}).parameters == device);
  CHECK(tiers({}).optimizer == device);
  refused({"--offload", "infinity-nvme"}, "--offload infinity-nvme needs --nvme");
  refused({"--offload", "infinity"}, "infinity-cpu");
  const auto all = resolved_map(parse({"--data", "a", "--offload", "infinity-cpu", "--optimizer-tier", "device"}));
  CHECK(all.at("offload") == "infinity-cpu");
  CHECK(all.at("parameter-tier") == "host");
  CHECK(all.at("optimizer-tier") == "device");
}

TEST_CASE("a preset sets all sizes, and flags override it wherever they stand") {
  const auto options = parse({"--layers", "3", "--model", "gpt2-medium", "--data", "a.bin"});
  CHECK(options.model.name == "gpt2-medium");
  CHECK(options.model.gpt().layers == 3);
  CHECK(options.model.gpt().hidden == 1024);
  CHECK(options.model.gpt().vocab_size == 50257);
  CHECK(options.model.gpt().sequence_length == 1024);
}

TEST_CASE("token files need no tokenizer and bring GPT-2's vocabulary") {
  const auto by_name = parse({"--data", "train.bin"});
  CHECK(by_name.data.tokenizer == Tokenizer::none);
  CHECK(by_name.model.gpt().vocab_size == 50257);
  const auto by_format = parse({"--data", "train", "--token-format", "uint16", "--vocab-size", "512"});
  CHECK(by_format.data.tokenizer == Tokenizer::none);
  CHECK(by_format.model.gpt().vocab_size == 512);
  CHECK(parse({"--data", "a.bin", "--token-format", "text"}).model.gpt().vocab_size == 256);
  refused({"--token-format", "text", "--tokenizer", "none"}, "--tokenizer bytes");
}

TEST_CASE("a model of images has blocks, a width and classes, and data without a tokenizer") {
  const auto images =
      parse({"--model", "wide-resnet", "--data", "synthetic", "--blocks", "1,2,3,4", "--width", "5"});
  CHECK(images.data.tokenizer == Tokenizer::none);
  CHECK(models::layers_of(images.model.sizes) == 12);
  const auto all = resolved_map(images);
  CHECK(all.at("blocks") == "1,2,3,4");
  CHECK(all.at("width") == "5");
  CHECK(all.at("image-size") == "32");
  CHECK(all.at("layers") == "none");
  CHECK(resolved_map(parse({"--data", "a"})).at("blocks") == "none");
  for (const char* blocks : {"1,2,3", "1,2,3,4,5", "1,2,3,0", "1,2,,4", "1,2,3,4,", "a"})
    refused({"--model", "wide-resnet", "--blocks", blocks}, "four numbers above 0, as in 3,4,6,3");
  refused({"--model", "wide-resnet", "--layers", "3"}, "--model");
  refused({"--model", "wide-resnet", "--mask-token", "3"}, "--mask-token is about text");
  refused({"--model", "wide-resnet", "--g-inter", "11", "--world", "11", "--dry-run"}, "--g-inter 11");
}

TEST_CASE("a BERT's MLP is four times as wide, and bytes have a token that masks them") {
  const auto bert = parse({"--model", "bert", "--data", "a"});
  CHECK(bert.model.size(models::Size::vocab_size) == 257);
  CHECK(bert.model.size(models::Size::ffn_size) == 4 * 384);
  CHECK(!bert.data.mask_token);
  CHECK(bert.data.mlm_probability == 0.15);
  CHECK(parse({"--model", "roberta", "--data", "a", "--hidden", "64"}).model.size(models::Size::ffn_size) == 256);
  CHECK(parse({"--model", "bert", "--data", "a", "--ffn-size", "99"}).model.size(models::Size::ffn_size) == 99);
  const auto other = parse({"--model", "bert", "--data", "a", "--mask-token", "299", "--mlm-probability", "0.4"});
  CHECK(other.model.size(models::Size::vocab_size) == 300);
  CHECK(other.data.mlm_probability == 0.4);
  CHECK(parse({"--model", "bert-large", "--data", "a.bin"}).model.size(models::Size::vocab_size) == 30522);
  CHECK(parse({"--model", "bert", "--data", "a", "--dropout", "0.1"}).notes.empty());
  const auto unused = parse({"--data", "a", "--mask-token", "3"});
  REQUIRE(unused.notes.size() == 1);
  CHECK(unused.notes[0].find("--mask-token 3 has no effect with a model that fills no masks") != std::string::npos);
  refused({"--model", "bert", "--mlm-probability", "0"},
          "--mlm-probability: '0' will not do: give a number above 0");
  refused({"--model", "bert", "--mask-token", "mask"}, "a token's number, or auto");
  refused({"--model", "bert", "--mask-token", "900", "--vocab-size", "500"},
          "--mask-token 900 is not one of the 500");
  refused({"--model", "bert", "--sample-every", "3"}, "--model bert fills masks and writes no text");
  refused({"--model", "bert", "--hellaswag", "q"}, "--model bert fills masks");
  CHECK(parse({"--model", "bert", "--data", "a", "--documents", "mask"}).data.documents == models::Documents::mask);
  refused({"--model", "bert", "--prompt-field", "ask"}, "--prompt-field ask: --model bert fills masks");
  refused({"--model", "bert", "--ffn-size", "100", "--tile", "8"},
          "--tile 8 does not divide --ffn-size 100: choose a divisor such as 4");
  refused({"--model", "bert", "--kv-heads", "2"}, "as --model bert has no such size");
  refused({"--model", "bert", "--heads", "7"}, "--heads 7 does not divide --hidden 384");
}

TEST_CASE("the grid follows from the ranks, and must match them") {
  CHECK(parse({"--data", "a", "--g-inter", "2"}, 6).trainer.grid.g_data == 3);
  CHECK(parse({"--data", "a", "--g-inter", "2"}, 6).trainer.batch_size == 18);
  CHECK(parse({"--data", "a", "--g-inter", "4", "--g-data", "1"}).trainer.pipeline_limit == 4);
  // Limits of chunks follow from the order of their passes.
  const auto chunks = parse({"--data", "a", "--g-inter", "4", "--g-data", "1", "--chunks-per-rank", "2"}).trainer;
  CHECK(chunks.chunks_per_rank == 2);
  CHECK(chunks.pipeline_limit == 0);
  refused({"--chunks-per-rank", "0"}, "--chunks-per-rank: '0'");
  refused({"--g-inter", "3"}, "--g-inter 3 does not divide the number of ranks, 4");
  refused({"--g-inter", "2", "--g-data", "3"}, "a grid of 6 ranks, but there are 4: start with mpirun -n 6");
  refused({"--g-inter", "0"}, "--g-inter: '0'");
  refused({"--g-inter", "4", "--layers", "3"}, "--g-inter 4 is more stages than --layers 3");
}

TEST_CASE("a dry run may imagine its ranks and needs no data") {
  const auto options = parse({"--dry-run", "--world", "48", "--g-inter", "6"}, 1);
  CHECK(options.run.request == Request::dry_run);
  CHECK(options.ranks == 48);
  CHECK(options.trainer.grid.g_data == 8);
  refused({"--world", "8"}, "add --dry-run");
}

TEST_CASE("ranks are on the nodes that MPI names, unless --node-size imagines some") {
  const std::vector<int> asked{0, 0, 2, 2};
  CHECK(nodes_of(parse({"--data", "a"}), asked) == asked);
  CHECK(nodes_of(parse({"--data", "a", "--node-size", "3"}), asked) == std::vector{0, 0, 0, 1});
  CHECK(parse({"--dry-run", "--world", "64"}).shard.node_size == 8);
  CHECK(parse({"--dry-run", "--world", "6"}).shard.node_size == 6);
  CHECK(nodes_of(parse({"--dry-run", "--world", "4", "--node-size", "2"}, 1), std::vector{0}) ==
        std::vector{0, 0, 1, 1});
}

TEST_CASE("algorithms are auto or one of their collective's") {
  const auto automatic = parse({"--data", "a"});
  CHECK(automatic.trainer.algorithms.all_gather == "auto");
  CHECK_FALSE(automatic.shard.prefetch);
  const auto named = parse({"--data", "a", "--all-gather", "ho-ring", "--reduce-scatter", "hierarchical",
                            "--all-reduce", "torus", "--prefetch", "0"});
  CHECK(named.trainer.algorithms.all_gather == "ho-ring");
  CHECK(named.trainer.algorithms.reduce_scatter == "hierarchical");
  CHECK(named.trainer.algorithms.all_reduce == "torus");
  CHECK(named.shard.prefetch == 0);
  CHECK(named.trainer.prefetch == 0);
  refused({"--all-gather", "torus"}, "one of auto, ring, recursive, hierarchical, h-ring, ho-ring");
  refused({"--all-reduce", "h-ring"}, "one of auto, ring, recursive, hierarchical, torus, ho-ring");
  refused({"--prefetch", "-1"}, "a number of units, 0 for none, or auto");
}

TEST_CASE("ranks that read other figures of links have another hash") {
  const TemporaryFolder folder;
  const auto path = (folder.path() / "links.json").string();
  const auto hash_with = [&](const char* latency) {
    const std::string link = fmt::format(
        R"({{"latency_seconds": {}, "bytes_per_second": 6e9, "node_bytes_per_second": 12e9}})", latency);
    folder.write("links.json", fmt::format(R"({{"intra_node": {}, "inter_node": {}}})", link, link));
    const auto options = parse({"--data", "a", "--links", path.c_str()});
    CHECK(options.trainer.links.intra_node.bytes_per_second == 6e9);
    return options_hash(options);
  };
  CHECK(hash_with("1e-6") == hash_with("1e-6"));
  CHECK(hash_with("1e-6") != hash_with("2e-6"));
  refused({"--links", (folder.path() / "none.json").c_str()}, "none.json: cannot be read");
  folder.write("links.json", "{}");
  refused({"--links", path.c_str()}, "has no class of links");
}

TEST_CASE("the batch is divisible by the rows") {
  refused({"--batch-size", "6"}, "--batch-size 6 is not divisible by --g-data 4: choose a multiple, such as 8");
  CHECK(parse({"--data", "a", "--batch-size", "8"}).trainer.microbatch_size == 2);
  CHECK(parse({"--data", "a", "--batch-size", "8", "--microbatch-size", "3"}).trainer.microbatch_size == 2);
  CHECK(parse({"--data", "a", "--batch-size", "40", "--microbatch-size", "3"}).trainer.microbatch_size == 3);
}

TEST_CASE("words are read as what they name, and other words are refused") {
  const auto options = parse({"--data", "a", "--policy", "1f1b", "--recompute", "3", "--lr-decay", "linear",
                              "--shuffle", "off", "--device", "inline", "--device-memory", "512MiB"});
  CHECK(options.trainer.policy == actors::Policy::one_f_one_b);
  CHECK(options.trainer.recompute == 3);
  CHECK(options.trainer.learning_rate.decay == actors::LearningRateOptions::Decay::linear);
  CHECK_FALSE(options.data.shuffle);
  CHECK(options.device.device == DeviceChoice::inline_);
  CHECK(options.device.memory_bytes == std::size_t{512} << 20);
  CHECK(parse({"--data", "a", "--recompute", "auto"}).trainer.recompute_auto);
  const auto off = parse({"--data", "a", "--recompute", "off"}).trainer;
  CHECK((off.recompute == 0 && !off.recompute_auto));

  CHECK_FALSE(off.deferred_limit);
  const auto waits = parse({"--data", "a", "--policy", "zero-bubble", "--deferred-limit", "3"}).trainer;
  CHECK(waits.policy == actors::Policy::zero_bubble);
  CHECK(waits.deferred_limit == 3);
  CHECK(parse({"--data", "a", "--defer-weights"}).trainer.defer_weights);

  CHECK(off.layers_per_stage.empty());
  CHECK(off.rebalance_steps == 0);
  const auto split = parse({"--data", "a", "--layers-per-stage", "7,12,6", "--rebalance"}).trainer;
  CHECK(split.layers_per_stage == std::vector<int>{7, 12, 6});
  CHECK(split.rebalance_steps > 0);
  CHECK(parse({"--data", "a", "--layers-per-stage", "auto"}).trainer.layers_per_stage.empty());

  for (const char* wrong : {"", "3,", ",3", "3,0", "3;4", "3,four"})
    refused({"--layers-per-stage", wrong}, "a number of layers above 0 for each stage, as in 7,7,6, or auto");
  refused({"--policy", "1f2b"}, "one of message-driven, 1f1b, gpipe, zero-bubble, zb-h1");
  refused({"--deferred-limit", "-1"}, "a number of microbatches, 0 for none, or auto");
  refused({"--recompute", "0"}, "a number of layers, auto or off");
  refused({"--model", "gpt3"}, "gpt2-small");
  refused({"--stpes", "3"}, "did you mean --steps?");
}

TEST_CASE("-h asks for help, and is a value like others after a flag") {
  CHECK(parse({"--data", "a", "-h"}).run.request == Request::help);
  CHECK(parse({"--data", "a", "--sample-prompt", "-h"}).data.sample_prompt == "-h");
  refused({"-x"}, "unexpected argument '-x'");
}

TEST_CASE("a GPU is chosen by its number or in turn, in a build that has the device") {
  if constexpr (runtime::with_cuda) {
    CHECK(parse({"--data", "a"}).device.device == DeviceChoice::cpu);
    const auto in_turn = parse({"--data", "a", "--device", "cuda"}).device;
    CHECK(in_turn.device == DeviceChoice::cuda);
    CHECK_FALSE(in_turn.gpu.has_value());
    CHECK(in_turn.point_to_point == PointToPoint::automatic);
    const auto third = parse({"--data", "a", "--device", "cuda:3", "--p2p", "staged"}).device;
    CHECK(third.gpu == 3);
    CHECK(third.point_to_point == PointToPoint::staged);
    CHECK(third.measures_products);
    CHECK_FALSE(parse({"--data", "a", "--device", "cuda", "--products", "first"}).device.measures_products);
    CHECK_FALSE(third.fast_attention_backward);
    CHECK(
        parse({"--data", "a", "--device", "cuda", "--attention-backward", "fast"}).device.fast_attention_backward);
    refused({"--device", "cuda:"}, "cuda or cuda:N");
    refused({"--device", "cuda:-1"}, "cuda or cuda:N");
    refused({"--device", "cuda0"}, "cuda or cuda:N");
    refused({"--device", "gpu"}, "cpu, inline, cuda or cuda:N");
  } else {
    refused({"--device", "cuda"}, "this build has no CUDA device");
    refused({"--device", "gpu"}, "cpu or inline");
  }
  refused({"--p2p", "pigeon"}, "auto, staged, direct");
  refused({"--products", "fastest"}, "measured, first");
  refused({"--attention-backward", "slow"}, "deterministic, fast");
}

TEST_CASE("a file of measured products is for runs that measure") {
  refused({"--products-file", "p.json", "--precision", "bf16"}, "--products-file p.json has no use off a GPU");
  if constexpr (runtime::with_cuda) {
    CHECK(parse({"--data", "a", "--device", "cuda", "--precision", "bf16", "--products-file", "p.json"})
              .device.products_file == "p.json");
    refused({"--device", "cuda", "--products-file", "p.json"}, "in fp32, which is never measured");
    refused({"--device", "cuda", "--products-file", "p.json", "--precision", "fp16", "--products", "first"},
            "with --products first, which measures nothing");
  }
}

TEST_CASE("rates outside their ranges are refused") {
  refused({"--dropout", "1"}, "--dropout: '1'");
  refused({"--learning-rate", "-1"}, "--learning-rate: '-1'");
  refused({"--learning-rate", "1e400"},
          "--learning-rate: '1e400' will not do: give a number that is not out of range");
  refused({"--beta2", "1"}, "--beta2: '1'");
  refused({"--clip", "nan"}, "--clip: 'nan'");
  refused({"--timeout", "0"}, "--timeout 0");
  refused({"--validation-split", "1"}, "--validation-split: '1'");
  refused({"--min-learning-rate", "1", "--learning-rate", "0.1"}, "is above --learning-rate 0.1");
  CHECK(parse({"--hidden", "64"}).model.gpt().heads == 1);
  CHECK(parse({"--hidden", "200"}).model.gpt().heads == 2);
  CHECK(parse({"--data", "a"}).model.gpt().tile == 1);
  CHECK(parse({"--data", "a", "--tile", "8"}).model.gpt().tile == 8);
  CHECK(parse({"--data", "a.bin", "--model", "gpt2-small", "--tile", "3"}).model.gpt().tile == 3);
  refused({"--tile", "7"}, "--tile 7 does not divide --hidden 384: choose a divisor such as 6");
  refused({"--tile", "0"}, "--tile");
  refused({"--heads", "7"}, "--heads 7 does not divide --hidden 384: choose a divisor such as 6");
}

TEST_CASE("precision, gradients and loss scale fit together") {
  CHECK(parse({"--data", "a", "--precision", "fp16"}).trainer.loss_scale.scale == 65536);
  const auto half = parse({"--data", "a", "--precision", "bf16", "--gradient-dtype", "half"});
  CHECK(half.trainer.precision.gradient == DType::bf16);
  CHECK(half.model.gpt().precision.compute == DType::bf16);
  CHECK(parse({"--data", "a", "--precision", "bf16"}).trainer.precision.gradient == DType::f32);
  refused({"--gradient-dtype", "half"}, "--precision bf16 or fp16");
  refused({"--loss-scale", "8"}, "no use in fp32");
}

TEST_CASE("bad steps end the job unless they are to be skipped or rolled back") {
  using Action = ranvier::actors::BadStepOptions::Action;
  CHECK(parse({"--data", "a"}).trainer.bad_steps.action == Action::stop);
  const auto bad = parse({"--data", "a", "--bad-steps", "rollback", "--bad-steps-limit", "3", "--spike-factor",
                          "2.5", "--checkpoint", "c"});
  CHECK(bad.trainer.bad_steps.action == Action::rollback);
  CHECK(bad.trainer.bad_steps.limit == 3);
  CHECK(bad.trainer.bad_steps.spike_factor == 2.5);
  CHECK(parse({"--data", "a", "--check-every", "50"}).trainer.check_every == 50);
  refused({"--spike-factor", "0.9"}, "a number above 1, or 0");
  refused({"--bad-steps", "ignore"}, "stop, skip, rollback");
  refused({"--bad-steps", "rollback"}, "give --checkpoint DIR");
}

TEST_CASE("validation has both a share of the data and a time") {
  CHECK(parse({"--data", "a", "--eval-every", "10"}).data.validation_split == 0.1);
  CHECK(parse({"--data", "a", "--validation-split", "0.2", "--steps", "30"}).trainer.eval_every == 30);
  refused({"--eval-every", "10", "--validation-split", "0"}, "nothing to evaluate");
  CHECK(parse({"--data", "a", "--eval-every", "10"}).data.eval_samples == 0);
  CHECK(parse({"--data", "a", "--eval-every", "10", "--eval-samples", "7"}).data.eval_samples == 7);
  refused({"--eval-samples", "7"}, "--eval-samples 7 of nothing");
}

TEST_CASE("an evaluation alone needs weights, and what only training reads or writes is a misunderstanding") {
  refused({"--eval-only"}, "--eval-only evaluates weights, and none are named: give --init-from PATH");
  refused({"--eval-only", "--init-from", "w", "--save", "s"}, "--save s with --eval-only");
  refused({"--eval-only", "--init-from", "w", "--sample-every", "5"}, "--sample-every 5 with --eval-only");
}

TEST_CASE("questions are answered when validating, or at the end without keeping data for that") {
  const auto alone = parse({"--data", "a", "--hellaswag", "q.bin", "--steps", "30"});
  CHECK(alone.trainer.eval_every == 30);
  CHECK(alone.data.validation_split == 0);
  const auto both = parse({"--data", "a", "--hellaswag", "q.bin", "--eval-every", "10"});
  CHECK(both.trainer.eval_every == 10);
  CHECK(both.data.validation_split == 0.1);
  CHECK(parse({"--data", "a", "--hellaswag", "q.bin", "--eval-every", "9", "--validation-split", "0"})
            .trainer.eval_every == 9);
  refused({"--hellaswag", "q.bin", "--eval-every", "0"}, "--hellaswag q.bin with --eval-every 0");
}

TEST_CASE("checkpoints are taken by steps or by time, and a run goes on where it can be known from what") {
  const auto plain = parse({"--data", "a"});
  CHECK(plain.checkpoint.folder.empty());
  CHECK(plain.trainer.checkpoint_staging == 0);
  const auto by_time = parse({"--data", "a", "--checkpoint", "c"});
  CHECK(by_time.checkpoint.every_time == std::chrono::minutes(30));
  CHECK(by_time.trainer.checkpoint_staging > 0);
  const auto by_steps =
      parse({"--data", "a", "--checkpoint", "c", "--checkpoint-every", "500", "--resume", "auto", "--resume-with",
             "--steps,clip", "--checkpoint-rate", "200MiB", "--time-limit", "1h"});
  CHECK(by_steps.checkpoint.every_steps == 500);
  CHECK_FALSE(by_steps.checkpoint.every_time);
  CHECK(by_steps.checkpoint.resume_with == std::vector<std::string>{"steps", "clip"});
  CHECK(by_steps.checkpoint.stop_before == std::chrono::minutes(5));
  CHECK(parse({"--data", "a", "--time-limit", "20m"}).checkpoint.stop_before == std::chrono::minutes(2));
  refused({"--checkpoint", "c", "--checkpoint-every", "often"}, "a number of steps, such as 500, or a time");
  refused({"--resume", "auto"}, "--resume auto looks for checkpoints in the folder of --checkpoint");
  refused({"--checkpoint", "c", "--resume", "auto", "--resume-with", "lerning-rate"},
          "did you mean learning-rate?");
  refused({"--time-limit", "3m", "--stop-before", "3m"}, "--stop-before 3m leaves nothing of --time-limit 3m");
  refused({"--eval-only", "--init-from", "w", "--checkpoint", "c"}, "--checkpoint c with --eval-only");
  const auto notes = parse({"--data", "a", "--checkpoint-keep", "5", "--stop-before", "3m"}).notes;
  CHECK(std::any_of(notes.begin(), notes.end(), [](const std::string& note) {
    return note.find("--checkpoint-keep 5 has no effect without --checkpoint") != std::string::npos;
  }));
}

TEST_CASE("what is resolved is the same text, and parsing it again gives the same run") {
  const TemporaryFolder folder;
  const auto options =
      parse({"--data",       "a b.bin", "--model",     "gpt2-small", "--g-inter",        "2",
             "--recompute",  "auto",    "--precision", "fp16",       "--gradient-dtype", "half",
             "--eval-every", "5",       "--dropout",   "0.1",        "--shard",          "IGN",
             "--all-gather", "ring",    "--prefetch",  "3",          "--learning-rate",  "0.00025"});
  std::string config;
  for (const auto& [name, value] : resolved_map(options))
    if (!value.empty() && name != "world") config += name + " = " + value + "\n";
  const auto path = folder.write("run.conf", config);
  auto again = parse({"--config", path.c_str()});
  CHECK(options_hash(again) == options_hash(options));
  again.run.config.clear();
  CHECK(resolved_map(again) == resolved_map(options));
}

TEST_CASE("ranks with other options have another hash, except for what is a rank's own") {
  const auto hash = options_hash(parse({"--data", "a"}));
  CHECK(options_hash(parse({"--data", "a", "--threads", "3", "--device-memory", "1GiB"})) == hash);
  CHECK(options_hash(parse({"--data", "a", "--seed", "3"})) != hash);
  CHECK(options_hash(parse({"--data", "a", "--save", "w"})) != hash);
  CHECK(options_hash(parse({"--data", "a"}, 8)) != hash);
}

TEST_CASE("help and version are answered whatever else is missing") {
  CHECK(parse({"--help"}).run.request == Request::help);
  CHECK(parse({"--version", "--g-inter", "9"}).run.request == Request::version);
  for (const auto& option : resolved(parse({"--data", "a"})))
    CHECK(train_help().find("--" + option.name) != std::string::npos);
}

TEST_CASE("a tokenizer of GPT-2's kind, Megatron's files and weights of several files are understood") {
  const auto gpt2 = parse({"--data", "corpus.txt", "--tokenizer", "gpt2:some/dir"});
  CHECK(gpt2.data.tokenizer == Tokenizer::gpt2);
  CHECK(gpt2.data.gpt2 == "some/dir");
  CHECK(gpt2.model.gpt().vocab_size == 50257);
  CHECK(parse({"--data", "a.idx"}).data.tokenizer == Tokenizer::none);
  CHECK(parse({"--data", "a.bin:0.7,b.bin:0.3"}).data.tokenizer == Tokenizer::none);
  CHECK(parse({"--data", "a.bin:0.7,b.txt:0.3"}).data.tokenizer == Tokenizer::bytes);
  CHECK(parse({"--data", "a", "--token-format", "megatron"}).data.format == models::TokenFormat::megatron);
  const auto lines = parse({"--data", "a", "--token-format", "jsonl", "--json-field", "body"}).data;
  CHECK(lines.format == models::TokenFormat::jsonl);
  CHECK(lines.tokenizer == Tokenizer::bytes);
  CHECK(lines.json_field == "body");
  refused({"--token-format", "jsonl", "--tokenizer", "none"}, "--tokenizer none cannot read --token-format jsonl");
}

TEST_CASE("documents are joined or masked, and always masked where they are answers to prompts") {
  CHECK(parse({"--data", "a.txt"}).data.documents == models::Documents::join);
  const auto masked = parse({"--data", "a.bin", "--documents", "mask", "--document-end", "50256"}).data;
  CHECK(masked.documents == models::Documents::mask);
  CHECK(masked.document_end == 50256);
  const auto answers = parse({"--data", "a.jsonl", "--prompt-field", "q", "--json-field", "a"}).data;
  CHECK(answers.documents == models::Documents::mask);
  CHECK(answers.prompt_field == "q");
  CHECK(parse({"--data", "a.txt", "--documents", "pad", "--model", "bert"}).data.documents ==
        models::Documents::pad);
  refused({"--documents", "pad"}, "--documents pad: --model gpt says the next token");
  refused({"--documents", "pad", "--prompt-field", "q"}, "--documents pad with --prompt-field q");
  refused({"--documents", "join", "--prompt-field", "q"}, "--documents join with --prompt-field q");
  refused({"--tokenizer", "none", "--prompt-field", "q"}, "--tokenizer none cannot read the text");
  refused({"--prompt-field", "text"}, "--prompt-field text and --json-field text");
  refused({"--document-end", "7"}, "--document-end 7 has no use with --documents join: add --documents mask");
  refused({"--documents", "mask", "--document-end", "7"}, "of text documents are known");
  refused({"--document-end", "-1", "--documents", "mask"}, "--document-end");
}

TEST_CASE("flags that were given and change nothing are said, with why") {
  const auto notes = [](std::vector<const char*> arguments, int ranks = 4) {
    arguments.insert(arguments.end(), {"--data", "text.txt"});
    return parse(arguments, ranks).notes;
  };
  CHECK(notes({"--shard", "zero3", "--prefetch", "1", "--lr-decay", "linear", "--min-learning-rate", "1e-5"})
            .empty());
  CHECK(notes({"--lr-decay", "constant", "--min-learning-rate", "1e-5"}) ==
        std::vector<std::string>{"note: --min-learning-rate 1e-05 has no effect with --lr-decay constant"});
  CHECK(notes({"--sample-prompt", "Once", "--sample-tokens", "9"}) ==
        std::vector<std::string>{"note: --sample-prompt Once has no effect without --sample-every",
                                 "note: --sample-tokens 9 has no effect without --sample-every"});
  CHECK(notes({"--steps", "10", "--warmup-steps", "40", "--learning-rate", "0.004"}) ==
        std::vector<std::string>{
            "note: --warmup-steps 40 goes beyond --steps 10: the learning rate rises to 0.001, not to 0.004"});
  CHECK(notes({"--shard", "zero3"}, 1).size() == 1);
  CHECK(notes({"--prefetch", "1"}).size() == 1);
  CHECK(notes({"--prefetch", "1", "--parameter-tier", "host"}).empty());
  CHECK(notes({"--cuda-graphs", "off", "--p2p", "staged"}).size() == 2);
  CHECK(notes({"--bad-steps-limit", "3"}) ==
        std::vector<std::string>{
            "note: --bad-steps-limit 3 has no effect with --bad-steps stop, which ends the job at the first one"});
  CHECK(notes({"--check-every", "3"}, 1) ==
        std::vector<std::string>{"note: --check-every 3 has no effect with one rank, whose states have no copies"});
  // Whether a step counts is known late then, also without clipping.
  CHECK(notes({"--clip", "0", "--offload", "infinity-cpu", "--optimizer-commit", "flip"}).size() == 1);
  CHECK(notes({"--clip", "0", "--offload", "infinity-cpu", "--optimizer-commit", "flip", "--bad-steps", "skip"})
            .empty());
}

TEST_CASE("adapters come from their flags or from a folder, and what contradicts them is refused") {
  const TemporaryFolder folder;
  const std::string adapter = folder.path().string(), saved = adapter + "/saved-1.5";
  const auto options = parse({"--data", "text.txt", "--model", "llama", "--lora-rank", "4", "--lora-targets",
                              "up_proj,o_proj,up_proj", "--save", saved.c_str()});
  CHECK(options.model.adapts());
  CHECK(options.model.lora.alpha == 8);
  CHECK(options.model.lora.targets == std::vector<std::string>{"o_proj", "up_proj"});
  CHECK(options.run.save == saved + "/adapter_model.safetensors");
  CHECK(resolved_map(options).at("lora-targets") == "o_proj,up_proj");
  CHECK_FALSE(parse({"--data", "text.txt"}).model.adapts());

  folder.write("adapter_config.json",
               R"({"peft_type":"LORA","r":16,"lora_alpha":32,"lora_dropout":0.1,"target_modules":["k_proj"]})");
  const auto stored = parse({"--data", "text.txt", "--init-adapter", adapter.c_str(), "--lora-dropout", "0"});
  CHECK(stored.model.lora.rank == 16);
  CHECK(stored.model.lora.alpha == 32);
  CHECK(stored.model.lora.dropout == 0);
  CHECK(stored.model.lora.targets == std::vector<std::string>{"k_proj"});
  refused({"--init-adapter", adapter.c_str(), "--lora-rank", "4"}, "has rank 16 and targets k_proj");
  refused({"--lora-rank", "4", "--train", "norm"}, "--train with --lora-rank 4");
  refused({"--lora-rank", "4", "--save", "weights.safetensors"}, "in a folder");
  refused({"--lora-rank", "4", "--lora-alpha", "0"}, "--lora-alpha 0");
  refused({"--lora-targets", "q_proj,,v_proj"}, "names with commas between them");
  CHECK(parse({"--data", "text.txt", "--lora-alpha", "4"}).notes ==
        std::vector<std::string>{"note: --lora-alpha 4 has no effect without --lora-rank"});
}
