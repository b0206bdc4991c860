#include "offload/job_directory.hpp"
#include "tests/test.hpp"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

using namespace ranvier;
using namespace ranvier::offload;
using ranvier::tests::TemporaryFolder;
namespace fs = std::filesystem;

namespace {

/// Leftover of a killed job: a folder of this host with an unlocked lock file.
fs::path make_leftover(const fs::path& parent, const std::string& suffix, bool with_lock = true) {
  fs::path like;
  {
    const JobDirectory folder(parent, 7);
    like = folder.path();
  }
  like.replace_extension(suffix);
  fs::create_directory(like);
  std::ofstream(like / JobDirectory::file_name) << "states";
  if (with_lock) std::ofstream(like / "lock") << "";
  return like;
}

}  // namespace

TEST_CASE("a job's folder belongs to it and is removed with it") {
  const TemporaryFolder parent;
  {
    const JobDirectory first(parent.path(), 0), second(parent.path(), 0), third(parent.path(), 1);
    CHECK(first.path() != second.path());
    CHECK(third.path().filename().string().find(".rank1.") != std::string::npos);
    for (const JobDirectory* folder : {&first, &second, &third}) {
      CHECK(fs::is_directory(folder->path()));
      std::ofstream(folder->file()) << "states";
      CHECK(folder->cleared() == 0);  // folders of running jobs stay
    }
  }
  CHECK(fs::is_empty(parent.path()));
}

TEST_CASE("folders of dead jobs are removed, folders of running jobs are not") {
  const TemporaryFolder parent;
  const JobDirectory living(parent.path(), 0);
  const fs::path dead = make_leftover(parent.path(), ".abcdef");
  const fs::path died_early = make_leftover(parent.path(), ".ghijkl", false);
  const JobDirectory next(parent.path(), 0);
  CHECK(next.cleared() == 1);  // creating the second leftover removed the first
  CHECK(!fs::exists(dead));
  CHECK(!fs::exists(died_early));
  CHECK(fs::exists(living.path() / "lock"));
  CHECK(fs::exists(next.path() / "lock"));
}

TEST_CASE("the folder of a killed process is removed by the next start, not before") {
  const TemporaryFolder parent;
  std::array<int, 2> ends{};
  REQUIRE(::pipe(ends.data()) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const JobDirectory folder(parent.path(), 0);
    std::ofstream(folder.file()) << "states";
    (void)!::write(ends[1], "", 1);
    for (;;) ::pause();
  }
  char started = 0;
  REQUIRE(::read(ends[0], &started, 1) == 1);
  CHECK(JobDirectory(parent.path(), 0).cleared() == 0);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  CHECK(!fs::is_empty(parent.path()));
  CHECK(JobDirectory(parent.path(), 0).cleared() == 1);
  CHECK(fs::is_empty(parent.path()));
  for (const int end : ends) ::close(end);
}

TEST_CASE("only leftovers are removed") {
  const TemporaryFolder parent;
  const fs::path dead = make_leftover(parent.path(), ".abcdef");
  std::ofstream(dead / "notes") << "somebody's";
  const fs::path elsewhere = parent.path() / "ranvier-offload.another-host.rank0.abcdef";
  fs::create_directory(elsewhere);
  parent.write("data/states", "somebody's");
  const fs::path link = parent.path() / dead.filename().replace_extension(".mnopqr");
  fs::create_directory_symlink(parent.path() / "data", link);
  parent.write("ranvier-offload.notes", "");
  {
    const JobDirectory next(parent.path(), 0);
    CHECK(next.cleared() == 0);
  }
  CHECK(fs::exists(dead / "notes"));
  CHECK(fs::exists(elsewhere));
  CHECK(fs::is_symlink(link));
  CHECK(parent.read("data/states") == "somebody's");
  CHECK(fs::exists(parent.path() / "ranvier-offload.notes"));
}

TEST_CASE("ranks that start and end at the same time do not affect each other") {
  const TemporaryFolder parent;
  std::vector<std::thread> ranks;
  std::vector<int> lost(4);
  for (int rank = 0; rank < 4; ++rank) {
    ranks.emplace_back([&, rank] {
      for (int round = 0; round < 100; ++round) {
        const JobDirectory folder(parent.path(), rank);
        std::ofstream(folder.file()) << rank;
        if (!fs::exists(folder.path() / "lock") || !fs::exists(folder.file())) ++lost[rank];
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  for (const int count : lost) CHECK(count == 0);
  CHECK(fs::is_empty(parent.path()));
}
