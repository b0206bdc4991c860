// Complete runs of LLaMA and BERT in tiles; GPT's are in end_to_end_test.cpp.
#include "tests/apps/same_tensors.hpp"
#include "tests/apps/small_run.hpp"

using namespace ranvier::tests;
using namespace std::chrono_literals;

namespace {

struct Family : SmallText {
  [[nodiscard]] std::vector<std::string> losses(int ranks, const Flags& flags) const {
    std::filesystem::remove(metrics);
    ends_well(ranks, join(flags, {"--metrics", metrics}), 60s);
    return metric(metrics, "loss");
  }
};

}  // namespace

TEST_CASE_FIXTURE(
    Family,
    "LLaMA and BERT in tiles start like undivided models, train like them and save weights that they read") {
  for (const Flags& family : {Flags{"--model", "llama", "--ffn-size", "48", "--kv-heads", "1"},
                              Flags{"--model", "bert", "--ffn-size", "64", "--vocab-size", "257"}}) {
    CAPTURE(family[1]);
    const std::string disk = make_folder("disk");
    const Flags tiles{"--tile", "4", "--shard", "zero3", "--g-data", "2", "--g-inter", "2"};
    const auto whole = losses(2, join(family, {"--g-data", "2"}));
    const std::string saved = file(family[1]), kept = file(family[1] + "-kept");
    const auto tiled =
        losses(4, join(join(family, tiles), {"--parameter-tier", "nvme", "--nvme", disk, "--save", saved}));
    REQUIRE(whole.size() == 4);
    REQUIRE(tiled.size() == 4);
    check_close(whole, tiled);
    // Undivided matrices, which do not change.
    ends_well(1, join(family, {"--init-from", saved, "--learning-rate", "0", "--steps", "1", "--save", kept}), 60s);
    check_same_tensors(saved, kept);
    CHECK(read_file(kept + "/config.json") == read_file(saved + "/config.json"));
  }
}
