#include "apps/options/option_effects.hpp"

#include "apps/options/train_options.hpp"
#include "runtime/base/error.hpp"
#include "tests/apps/train_flags.hpp"

using namespace ranvier;
using namespace ranvier::apps;
using namespace ranvier::tests;

namespace {

TrainOptions parse(const Flags& flags) { return parse_train(with_data(flags)); }

std::vector<apps::ResolvedOption> resolve(const Flags& flags, const std::string& content = "1") {
  const TrainOptions options = parse(flags);
  auto all = resolved(options);
  all.push_back({.name = computation_option,
                 .value = models::computation_of(options.model.sizes),
                 .effect = OptionEffect::decides});
  all.push_back({.name = content_option, .value = content, .effect = OptionEffect::decides});
  return all;
}

struct Changed {
  std::vector<std::string> lines;
  std::string error;
};

Changed change(const Flags& before, const Flags& now, const std::vector<std::string>& meant = {},
               const std::string& content = "1") {
  const auto changes = changed_options(options_to_save(resolve(before)), resolve(now, content),
                                       models::learns_positions(parse(now).model.sizes));
  try {
    return {accept_changes(changes, meant, "c/step-00000004"), {}};
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::usage);
    return {{}, error.what()};
  }
}

}  // namespace

TEST_CASE("unchanged options are accepted without a message") {
  const auto same = change("--seed 3", "--seed 3 --save w --metrics m --timeout 5");
  CHECK(same.lines.empty());
  CHECK(same.error.empty());
}

TEST_CASE("changes that alter the training are refused together, with both values and the remedy") {
  const auto refused = change({}, "--learning-rate 1e-4 --clip 0 --g-inter 2");
  check_has(refused.error, {"c/step-00000004", "--learning-rate 0.0001 (was 0.0006)", "--clip 0 (was 1)",
                            "--resume-with learning-rate,"});
  check_lacks(refused.error, {"g-inter"});
  // Options that were already named stay in the remedy.
  const auto half = change({}, "--beta1 0.8 --clip 0", {"clip"});
  check_has(half.error, {"--resume-with beta1,clip"});
  check_lacks(half.error, {"--clip"});
  const auto meant = change({}, "--beta1 0.8 --clip 0", {"clip", "beta1"});
  REQUIRE(meant.lines.size() == 1);
  check_has(meant.lines[0], {"as --resume-with allows"});
}

TEST_CASE("a checkpoint without --special-tokens counts as none") {
  auto older = options_to_save(resolve({}));
  older.erase(special_tokens_option);
  const auto changed = [&](const char* policy) {
    return changed_options(older, resolve(fmt::format("--special-tokens {}", policy)), true);
  };
  CHECK(changed("none").empty());
  REQUIRE(changed("tokenizer").size() == 1);
  CHECK(says(printed_error_of([&] { static_cast<void>(accept_changes(changed("tokenizer"), {}, "c")); }),
             "--special-tokens tokenizer (was none)"));
}

TEST_CASE("other types of messages are refused, and a checkpoint without them had the data's types") {
  const auto refused = change("--g-data 4", "--g-data 4 --gather-dtype inter=int8");
  check_has(refused.error, {"--gather-dtype inter=int8 (was same)", "--resume-with gather-dtype"});
  CHECK(change("--reduce-dtype int4", "--reduce-dtype inter=int4,intra=int4").error.empty());
  CHECK(change({}, "--reduce-dtype int4", {"reduce-dtype"}).error.empty());
  auto older = options_to_save(resolve({}));
  for (const char* const flag : {"gather-dtype", "reduce-dtype"}) older.erase(flag);
  CHECK(changed_options(older, resolve({}), true).empty());
  CHECK(changed_options(older, resolve("--reduce-dtype int8"), true).size() == 1);
}

TEST_CASE("another update rule is a change with its settings, and new moments start at zero") {
  const auto are_new = [](const Flags& before, const Flags& now) {
    return are_moments_new(changed_options(options_to_save(resolve(before)), resolve(now), true), resolve(now));
  };
  const Flags sgd = "--optimizer sgd", muon = "--optimizer muon", plain = join(sgd, "--momentum 0");
  const auto refused = change({}, sgd);
  check_has(refused.error, {"--optimizer sgd (was adamw)", "--resume-with optimizer if"});
  const auto meant = change({}, sgd, {"optimizer"});
  CHECK(meant.lines ==
        std::vector<std::string>{"--optimizer sgd (was adamw): results change, as --resume-with allows"});
  CHECK(are_new({}, sgd));
  CHECK(are_new(sgd, muon));
  check_has(change(sgd, plain).error, {"--momentum 0 (was 0.9)", "--resume-with momentum"});
  CHECK(are_new(sgd, plain));
  CHECK(are_new(plain, sgd));
  check_has(change(sgd, join(sgd, "--momentum 0.8")).error, {"--resume-with momentum"});
  CHECK_FALSE(are_new(sgd, join(sgd, "--momentum 0.8")));
  check_has(change(muon, join(muon, "--muon-learning-rate 0.1")).error, {"--muon-learning-rate 0.1 (was same)"});
  // Settings of other rules have no effect.
  CHECK(change({}, "--momentum 0 --muon-learning-rate 0.1").error.empty());
  CHECK_FALSE(are_new({}, "--momentum 0"));
  auto older = options_to_save(resolve({}));
  for (const char* const flag : {"optimizer", "momentum", "muon-learning-rate"}) older.erase(flag);
  CHECK(changed_options(older, resolve({}), true).empty());
  REQUIRE(changed_options(older, resolve(sgd), true).size() == 1);
}

TEST_CASE("changes that keep the training are reported with their effect on its bits") {
  const auto told = change(
      {},
      "--g-inter 2 --g-data 2 --policy gpipe --pipeline-limit 1 --eval-every 5 --validation-split 0 --hellaswag q");
  REQUIRE(told.lines.size() == 3);
  check_has(told.lines[0], {"--g-data 2 (was 4): results stay the same within rounding"});
  check_has(told.lines[1],
            {"--g-inter 2 (was 1)", "--policy gpipe (was message-driven)", "results stay bit-identical"});
  check_has(told.lines[2], {"--hellaswag q (was nothing)"});
  const Flags partial = "--train ln_f --shard zero3 --shard-trained";
  CHECK(change(join(partial, "ddp"), join(partial, "zero1")).lines ==
        std::vector<std::string>{"--shard-trained zero1 (was ddp): results stay the same within rounding"});
}

TEST_CASE("states of other sizes are refused in any case") {
  const auto refused = change({}, "--layers 7", {"layers"});
  check_has(refused.error, {"--layers 7 (was 6)", "another --checkpoint"});
}

TEST_CASE("another sequence length is a change of the training, or of the model if positions are learned") {
  const Flags longer = "--sequence-length 512";
  check_has(change({}, longer, {"sequence-length"}).error, {"states of other sizes"});
  const Flags llama = "--model llama", longer_llama = join(llama, longer);
  check_has(change(llama, longer_llama).error, {"--resume-with sequence-length"});
  const auto meant = change(llama, longer_llama, {"sequence-length"});
  CHECK(meant.error.empty());
  REQUIRE(meant.lines.size() == 1);
  check_has(meant.lines[0], {"--sequence-length 512 (was 256): results change, as --resume-with allows"});
}

TEST_CASE(
    "a model of the same sizes with another computation is a change, and another name for the same one is not") {
  const auto as = [](const char* name) { return Flags(fmt::format("--model {} --data a.bin", name)); };
  const auto other = change(as("llama3-8b"), as("llama3.1-8b"));
  check_has(other.error, {"--model", "llama3 8", "--resume-with model"});
  CHECK(change(as("llama3-8b"), as("llama3.1-8b"), {"model"}).error.empty());
  CHECK(change(as("llama2-7b"), join(as("llama2-7b"), "--kv-heads 32 --head-size 128")).error.empty());
}

TEST_CASE("a run with a constant learning rate may be extended") {
  const Flags constant = "--lr-decay constant --warmup-steps 3";
  CHECK(change(constant, join(constant, "--steps 600")).error.empty());
  check_has(change({}, "--steps 600").error, {"--resume-with steps"});
}

TEST_CASE("data may be in another folder, and other data at the same path are refused") {
  CHECK(change({}, "--data moved.txt").error.empty());
  check_has(change({}, "--data moved.txt", {}, "2").error, {"--data moved.txt (was text.txt)"});
  const auto other = change({}, {}, {}, "2");
  check_has(other.error, {"--data text.txt (was the same path with other content)", "--resume-with data"});
  CHECK(change({}, {}, {"data"}, "2").error.empty());
  // The same files, read in another way, are other texts.
  check_has(change({}, "--json-field body").error, {"--json-field body (was text)"});
  check_has(change({}, "--token-format jsonl").error, {"--token-format jsonl (was auto)"});
  check_has(change({}, "--documents mask").error, {"--documents mask (was join)"});
}

TEST_CASE("an option in --resume-with that did not change is reported") {
  const auto none = change({}, {}, {"seed"});
  REQUIRE(none.lines.size() == 1);
  check_has(none.lines[0], {"--resume-with seed has no effect"});
}
