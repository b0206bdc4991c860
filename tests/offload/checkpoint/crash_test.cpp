// Power that fails, and calls that fail, anywhere in the writing and removing of checkpoints.
#include "offload/checkpoint/folder.hpp"
#include "offload/checkpoint/reader.hpp"

#include "runtime/error.hpp"
#include "tests/effort.hpp"
#include "tests/offload/checkpoint/memory_storage.hpp"
#include "tests/offload/checkpoint/small_checkpoint.hpp"

#include <doctest/doctest.h>

#include <random>
#include <string>
#include <vector>

using namespace ranvier;
using namespace ranvier::offload;
using namespace ranvier::offload::tests;

namespace {

const std::filesystem::path run_folder = "/disk/run";

/// The seed of the newest whole checkpoint, all of which is looked at; 0 if there is none.
std::int64_t newest_seed(const MemoryStorage& storage) {
  const CheckpointFolder folder(run_folder, storage);
  const auto newest = folder.newest_whole();
  if (!newest) return 0;
  for (const CheckpointEntry& entry : folder.list()) CHECK_MESSAGE(entry.whole, entry.why_not);
  const auto damages = verify_checkpoint(newest->path, 1, nullptr, storage);
  for (const CheckpointDamage& damage : damages) MESSAGE(damage.file << ": " << damage.what);
  CHECK(damages.empty());
  return folder.open(newest->path).training.at("seed").as_int64();
}

/// How many of the names in the folder hold a part of a checkpoint.
std::size_t parts_in(const MemoryStorage& storage) {
  std::vector<std::string> names;
  static_cast<void>(storage.list(run_folder, names));
  return static_cast<std::size_t>(
      std::count_if(names.begin(), names.end(), [](const std::string& name) { return name.ends_with(".part"); }));
}

/// What a disk holds after each of the first changes and a power failure, in several ways for each; `check` gets how
/// many changes there were.
template <typename Check>
void crash_everywhere(const MemoryStorage& storage, std::size_t first, Check&& check) {
  const auto changes = storage.changes();
  std::mt19937_64 random(test::random_seed());
  CAPTURE(test::random_seed());
  const int ways = ranvier::tests::effort(6, 60, 3);
  for (std::size_t count = first; count <= changes.size(); ++count) {
    for (int way = 0; way < ways; ++way) {
      CAPTURE(count);
      CAPTURE(way);
      const auto crashed = MemoryStorage::after_crash(std::span(changes).first(count), [&](std::size_t) -> double {
        if (way < 2) return way;  // none, all
        const double share = std::uniform_real_distribution<double>(-1, 2)(random);
        return std::clamp(share, 0.0, 1.0);
      });
      check(*crashed, count);
    }
  }
}

}  // namespace

TEST_CASE(
    "wherever power fails while a checkpoint is written and the one before removed, one of them is found whole") {
  MemoryStorage storage;
  std::size_t begun = 0, whole = 0;
  {
    CheckpointFolder folder(run_folder, storage);
    folder.lock("aaaa");
    REQUIRE(SmallCheckpoint(500, 1).save(storage, folder, "aaaa").empty());
    begun = storage.changes().size();
    REQUIRE(SmallCheckpoint(600, 2).save(storage, folder, "aaaa").empty());
    whole = storage.changes().size();
    CHECK(folder.prune(1, 0) == std::vector<std::int64_t>{500});
  }
  CHECK(whole - begun >= 20);
  int olds = 0, news = 0;
  crash_everywhere(storage, begun, [&](const MemoryStorage& crashed, std::size_t count) {
    const std::int64_t seed = newest_seed(crashed);
    CHECK((seed == 2 || (seed == 1 && count < whole)));
    ++(seed == 1 ? olds : news);
    // The next job goes on from there.
    CheckpointFolder folder(run_folder, crashed);
    folder.lock("bbbb");
    CHECK(parts_in(crashed) == 0);
    CHECK(newest_seed(crashed) == seed);
    CHECK(SmallCheckpoint(700, 3).save(crashed, folder, "bbbb").empty());
    CHECK(newest_seed(crashed) == 3);
  });
  CHECK(olds > 0);
  CHECK(news > 0);
}

TEST_CASE("a step that is done again never loses the checkpoint that it replaces") {
  MemoryStorage storage;
  std::size_t begun = 0, whole = 0;
  {
    CheckpointFolder folder(run_folder, storage);
    folder.lock("aaaa");
    REQUIRE(SmallCheckpoint(500, 1).save(storage, folder, "aaaa").empty());
    begun = storage.changes().size();
    REQUIRE(SmallCheckpoint(500, 2).save(storage, folder, "aaaa").empty());
    whole = storage.changes().size();
    CHECK(folder.prune(1, 100) == std::vector<std::int64_t>{500});
    CHECK(folder.list().size() == 1);
    CHECK(folder.open(500).training.at("seed") == 2);
  }
  crash_everywhere(storage, begun, [&](const MemoryStorage& crashed, std::size_t count) {
    const std::int64_t seed = newest_seed(crashed);
    CHECK((seed == 2 || (seed == 1 && count < whole)));
  });
}

TEST_CASE("a run that leaves checkpoints behind always has a whole one to go on from") {
  MemoryStorage storage;
  std::size_t begun = 0, whole = 0;
  {
    CheckpointFolder folder(run_folder, storage);
    folder.lock("aaaa");
    REQUIRE(SmallCheckpoint(500, 1).save(storage, folder, "aaaa").empty());
    REQUIRE(SmallCheckpoint(700, 2).save(storage, folder, "aaaa").empty());
    begun = storage.changes().size();
    REQUIRE(SmallCheckpoint(600, 3).save(storage, folder, "aaaa").empty());
    whole = storage.changes().size();
  }
  crash_everywhere(storage, begun, [&](const MemoryStorage& crashed, std::size_t count) {
    const std::int64_t seed = newest_seed(crashed);
    CHECK((seed == 3 || (seed > 0 && count < whole)));
  });
}

TEST_CASE(
    "whichever call fails while a checkpoint is written, the one before stays, and the next try makes it whole") {
  for (int failing = 1; failing > 0; ++failing) {
    CAPTURE(failing);
    MemoryStorage storage;
    CheckpointFolder folder(run_folder, storage);
    folder.lock("aaaa");
    REQUIRE(SmallCheckpoint(500, 1).save(storage, folder, "aaaa").empty());
    int calls = 0;
    std::string failed;
    storage.refuse = [&](const std::string& call, const std::filesystem::path& path) {
      if (++calls != failing) return 0;
      failed = call + " of " + path.string();
      return -EIO;
    };
    std::string failure;
    try {
      failure = SmallCheckpoint(600, 2).save(storage, folder, "aaaa");
      if (failure.empty()) folder.prune(1, 0);
    } catch (const Error& error) {
      failure = error.what();
    }
    storage.refuse = nullptr;
    if (failed.empty()) break;  // all were tried
    CAPTURE(failed);
    const std::int64_t seed = newest_seed(storage);
    CHECK((seed == 1 || seed == 2));
    if (seed == 1) {
      CHECK(failure.find("/disk/run") != std::string::npos);
      CHECK(failure.find("Input/output error") != std::string::npos);
    }
    CHECK(SmallCheckpoint(600, 3).save(storage, folder, "aaaa").empty());
    CHECK(newest_seed(storage) == 3);
    folder.prune(1, 0);
    CHECK(newest_seed(storage) == 3);
    CHECK(folder.list().size() == 1);
    REQUIRE(failing < 200);
  }
}
