#include "apps/memory/remedies.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

using namespace ranvier;
using actors::TierKind;
using apps::Remedy;

namespace {

bool offers(const actors::TrainerOptions& options, const std::string& words, bool part = false) {
  const auto all = apps::remedies_of(options, part);
  return std::any_of(all.begin(), all.end(), [&](const Remedy& remedy) { return remedy.words == words; });
}

}  // namespace

TEST_CASE("a setting that the job already has is not a remedy, nor one that its grid or precision excludes") {
  actors::TrainerOptions options;
  options.batch_size = 8;
  options.microbatch_size = 4;
  for (const char* words :
       {"--recompute auto", "a smaller --microbatch-size", "--optimizer-tier host", "--offload infinity-cpu",
        "--optimizer-tier nvme with --nvme DIR", "--precision bf16"}) {
    CAPTURE(words);
    CHECK(offers(options, words));
  }
  CHECK_FALSE(offers(options, "--shard zero1"));  // one row
  CHECK_FALSE(offers(options, "--saved-activations few"));
  CHECK_FALSE(offers(options, "--gradient-dtype half"));
  options.saved_activations = models::SavedActivations::all;
  CHECK(offers(options, "--saved-activations few"));
  options.recompute_auto = true;
  options.microbatch_size = 1;
  options.tiers.optimizer = options.tiers.parameters = options.tiers.gradients = TierKind::nvme;
  options.precision = {runtime::DType::bf16, runtime::DType::f32};
  options.grid.g_data = 2;
  for (const char* words :
       {"--recompute auto", "a smaller --microbatch-size", "--optimizer-tier host", "--offload infinity-cpu",
        "--optimizer-tier nvme with --nvme DIR", "--precision bf16"}) {
    CAPTURE(words);
    CHECK_FALSE(offers(options, words));
  }
  CHECK(offers(options, "--shard zero1"));
  CHECK(offers(options, "--gradient-dtype half"));
}

TEST_CASE("in a partly trained model frozen parameters are sharded first, then states, then gradients") {
  actors::TrainerOptions options;
  options.grid.g_data = 4;
  options.batch_size = 16;
  std::vector<std::string> words;
  for (const Remedy& remedy : apps::remedies_of(options, true)) {
    if (remedy.words.starts_with("--shard")) words.push_back(remedy.words);
  }
  CHECK(words == std::vector<std::string>{"--shard zero3 --shard-trained ddp", "--shard-trained zero1",
                                          "--shard-trained zero2", "--shard-trained zero3"});
  options.sharding = collectives::parse_sharding("zero3");
  options.trained_sharding = collectives::parse_sharding("zero1");
  CHECK_FALSE(offers(options, "--shard zero3 --shard-trained zero1", true));
  CHECK_FALSE(offers(options, "--shard-trained zero1", true));
  CHECK(offers(options, "--shard-trained zero2", true));
  options.grid.g_data = 1;
  CHECK_FALSE(offers(options, "--shard-trained zero2", true));
}

TEST_CASE("a remedy is no longer offered once it is applied") {
  actors::TrainerOptions options;
  options.grid.g_data = 4;
  options.batch_size = 16;
  options.microbatch_size = 4;
  int tried = 0;
  for (const Remedy& remedy : apps::remedies_of(options, false)) {
    if (!remedy.make) continue;
    CAPTURE(remedy.words);
    actors::TrainerOptions changed = options;
    remedy.make(changed);
    CHECK_FALSE(offers(changed, remedy.words));
    ++tried;
  }
  CHECK(tried == 7);
}
