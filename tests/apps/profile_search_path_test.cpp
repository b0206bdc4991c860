#include "apps/program/profile_search_path.hpp"

#include "tests/environment.hpp"
#include "tests/test.hpp"

using namespace ranvier;
using namespace ranvier::tests;
using namespace std::chrono_literals;
using apps::find_profile;
using apps::profile_file;
using apps::ProfileSearchPath;

TEST_CASE("profiles have one file per host, kind of device and number of threads per rank") {
  const TemporaryFolder folder;
  const ProfileSearchPath places{.named = "", .folder = folder.path(), .host = "node1"};
  CHECK(profile_file(places, {.gpu = false, .threads = 1}) == folder.path() / "node1-cpu-1-thread.json");
  CHECK(profile_file(places, {.gpu = false, .threads = 8}) == folder.path() / "node1-cpu-8-threads.json");
  CHECK(profile_file(places, {.gpu = true}) == folder.path() / "node1-cuda.json");
}

TEST_CASE("a profile is found for its own host, device and threads only") {
  const TemporaryFolder folder;
  const ProfileSearchPath places{.named = "", .folder = folder.path(), .host = "node1"};
  CHECK_FALSE(find_profile(places, {.gpu = false, .threads = 2}));
  CHECK_FALSE(find_profile(places, {}));
  const auto two = folder.write("node1-cpu-2-threads.json", "{}"),
             one = folder.write("node1-cpu-1-thread.json", "{}");
  const auto other = folder.write("node10-cpu-4-threads.json", "{}");
  CHECK(find_profile(places, {.gpu = false, .threads = 2}) == two.string());
  CHECK(find_profile(places, {.gpu = false, .threads = 1}) == one.string());
  CHECK_FALSE(find_profile(places, {.gpu = false, .threads = 4}));
  CHECK_FALSE(find_profile(places, {.gpu = true}));
  const auto now = std::filesystem::file_time_type::clock::now();
  std::filesystem::last_write_time(one, now - 2h);
  std::filesystem::last_write_time(two, now - 1h);
  std::filesystem::last_write_time(other, now);
  CHECK(find_profile(places, {}) == two.string());
  std::filesystem::last_write_time(one, now);
  CHECK(find_profile(places, {}) == one.string());
  const auto gpu = folder.write("node1-cuda.json", "{}");
  CHECK(find_profile(places, {.gpu = true}) == gpu.string());
  CHECK(find_profile(places, {}) == one.string());
}

TEST_CASE("the environment variable overrides the files, and may disable profiles") {
  const TemporaryFolder folder;
  folder.write("node1-cuda.json", "{}");
  ProfileSearchPath places{.named = "h100-sxm", .folder = folder.path(), .host = "node1"};
  CHECK(find_profile(places, {.gpu = true}) == "h100-sxm");
  places.named = "none";
  CHECK_FALSE(find_profile(places, {.gpu = true}));
}

TEST_CASE("profiles are in the user's data folder") {
  const Variable named("RANVIER_PROFILE", "x.json");
  {
    const Variable data("XDG_DATA_HOME", "/data"), home("HOME", "/home/someone");
    CHECK(apps::profile_search_path().folder == "/data/ranvier/profiles");
    CHECK(apps::profile_search_path().named == "x.json");
    CHECK(!apps::profile_search_path().host.empty());
  }
  for (const char* no_folder : {static_cast<const char*>(nullptr), "", "relative"}) {
    const Variable data("XDG_DATA_HOME", no_folder), home("HOME", "/home/someone");
    CHECK(apps::profile_search_path().folder == "/home/someone/.local/share/ranvier/profiles");
  }
  const Variable data("XDG_DATA_HOME", nullptr), home("HOME", nullptr);
  ProfileSearchPath places = apps::profile_search_path();
  CHECK(places.folder.empty());
  const auto error = error_of([&] { static_cast<void>(profile_file(places, {.gpu = true})); });
  CHECK(error.code() == ErrorCode::usage);
  CHECK(says(error, "use --write-profile FILE"));
  places.named.clear();
  CHECK_FALSE(find_profile(places, {.gpu = true}));
}
