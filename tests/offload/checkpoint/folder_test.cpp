#include "offload/checkpoint/folder.hpp"

#include "runtime/base/error.hpp"
#include "tests/doubles/memory_storage.hpp"
#include "tests/offload/checkpoint/small_checkpoint.hpp"
#include "tests/test.hpp"

#include <unistd.h>

using namespace ranvier;
using namespace ranvier::offload;
using namespace ranvier::offload::tests;
using namespace ranvier::tests;
namespace fs = std::filesystem;

namespace {

std::vector<std::string> names_in(const FileSystem& storage, const fs::path& folder) {
  std::vector<std::string> names;
  REQUIRE(storage.list(folder, names) == 0);
  std::sort(names.begin(), names.end());
  return names;
}

/// A folder in memory that job aaaa writes to.
struct LockedFolder {
  LockedFolder() { folder.lock("aaaa"); }

  MemoryStorage storage;
  CheckpointFolder folder{"/run", storage};
};

void save_steps(const FileSystem& storage, CheckpointFolder& folder, const std::vector<std::int64_t>& steps) {
  for (const std::int64_t step : steps) REQUIRE(SmallCheckpoint(step).save(storage, folder, "aaaa").empty());
}

}  // namespace

TEST_CASE("a checkpoint on a real disk is found as the newest") {
  const TemporaryFolder parent;
  CheckpointFolder folder(parent.path() / "a" / "run");
  CHECK(folder.list().empty());
  CHECK(!folder.newest_whole());
  folder.lock("aaaa");
  save_steps(system_storage(), folder, {500, 1000});
  CHECK(names_in(system_storage(), folder.path()) ==
        std::vector<std::string>{"lock", "step-00000500", "step-00001000"});
  const auto newest = folder.newest_whole();
  REQUIRE(newest);
  CHECK(newest->step == 1000);
  CHECK(newest->path == folder.path() / "step-00001000");
  CHECK(open_checkpoint(system_storage(), newest->path).step == 1000);
  CHECK(says(error_of([&] { static_cast<void>(open_checkpoint(system_storage(), parent.path())); }),
             "manifest.json; use a complete checkpoint"));
  CHECK(folder.prune(1, 0) == std::vector<std::int64_t>{500});
  CHECK(names_in(system_storage(), folder.path()) == std::vector<std::string>{"lock", "step-00001000"});
}

TEST_CASE("a folder that another job writes to is refused by that job's host and process") {
  const TemporaryFolder parent;
  CheckpointFolder first(parent.path()), second(parent.path());
  first.lock("aaaa");
  const Error error = error_of([&] { second.lock("bbbb"); });
  CHECK(says(error, ErrorCode::io,
             fmt::format("{}: another job writes checkpoints there: job aaaa, process {} on ",
                         parent.path().string(), ::getpid()),
             "`checkpoint`"));
}

TEST_CASE("the lock is removed with its folder object, and the next job writes its own identity") {
  const TemporaryFolder parent;
  {
    CheckpointFolder(parent.path()).lock("aaaaaaaaaaaaaaaa");
  }
  CheckpointFolder next(parent.path());
  next.lock("bb");
  CHECK(parent.read("lock").starts_with("job bb, process "));
}

TEST_CASE("the owner's identity is synced to disk when lock() returns") {
  MemoryStorage storage;
  std::vector<std::string> calls;
  storage.refuse = [&](const std::string& call, const fs::path& path) {
    if (path == "/run/lock") calls.push_back(call);
    return 0;
  };
  CheckpointFolder folder("/run", storage);
  folder.lock("aaaa");
  REQUIRE(!calls.empty());
  CHECK(calls.back() == "sync");
}

TEST_CASE("a folder that cannot be written is refused by name") {
  MemoryStorage storage;
  for (const char* refused : {"make_folder", "open", "truncate", "write"}) {
    storage.refuse = [&](const std::string& call, const fs::path&) { return call == refused ? -EROFS : 0; };
    const Error error = error_of([&] { CheckpointFolder("/run", storage).lock("aaaa"); });
    CHECK(says(error, ErrorCode::io, "/run", "Read-only file system"));
    storage.refuse = nullptr;
  }
  const TemporaryFolder parent;
  parent.write("file", "");
  CHECK(says(error_of([&] { CheckpointFolder(parent.path() / "file" / "run").lock("aaaa"); }), "Not a directory"));
}

TEST_CASE("leftovers of dead jobs are removed, other files stay") {
  MemoryStorage storage;
  {
    CheckpointFolder dead("/run", storage);
    dead.lock("aaaa");
    const fs::path part = dead.prepare(500, "aaaa");
    REQUIRE(SmallCheckpoint(500).write_files(storage, part).empty());
  }
  static_cast<void>(CheckpointFolder("/run", storage).prepare(600, "bbaa"));
  for (const char* own : {"step-5.part", "step-00000500.a-b.part", "steps.x.part", "step-.x.part", "notes"})
    REQUIRE(storage.make_folder(fs::path("/run") / own) == 0);
  CheckpointFolder next("/run", storage);
  static_cast<void>(next.prepare(700, "bbbb"));
  next.lock("bbbb");
  CHECK(next.leftovers() == 2);
  CHECK(names_in(storage, "/run") == std::vector<std::string>{"lock", "notes", "step-.x.part",
                                                              "step-00000500.a-b.part", "step-00000700.bbbb.part",
                                                              "step-5.part", "steps.x.part"});
}

TEST_CASE_FIXTURE(LockedFolder,
                  "an unfinished checkpoint is removed when the job gives up, or by its next attempt") {
  for (const bool gives_up : {true, false}) {
    const fs::path part = folder.prepare(500, "aaaa");
    CHECK(part == folder.part_of(500, "aaaa"));
    REQUIRE(SmallCheckpoint(500).write_files(storage, part).empty());
    if (gives_up) {
      folder.give_up(500, "aaaa");
      folder.give_up(500, "aaaa");
      CHECK(names_in(storage, "/run") == std::vector<std::string>{"lock"});
    }
  }
  CHECK(folder.prepare(600, "aaaa") == "/run/step-00000600.aaaa.part");
  CHECK(names_in(storage, "/run") == std::vector<std::string>{"lock", "step-00000600.aaaa.part"});
  CHECK(names_in(storage, "/run/step-00000600.aaaa.part").empty());
}

TEST_CASE(
    "on a file system without locks a job continues, reports this, and leaves possible files of other jobs alone") {
  MemoryStorage storage;
  static_cast<void>(storage.make_folder("/run"));
  static_cast<void>(CheckpointFolder("/run", storage).prepare(500, "aaaa"));
  storage.refuse = [](const std::string& call, const fs::path&) { return call == "lock" ? -ENOLCK : 0; };
  CheckpointFolder folder("/run", storage);
  folder.lock("bbbb");
  CHECK(folder.lock_refused().starts_with("/run: the file system has no locks (No locks available)"));
  CHECK(folder.leftovers() == 0);
  save_steps(storage, folder, {600});
  CHECK(folder.newest_whole()->step == 600);
}

TEST_CASE("an incomplete checkpoint is skipped, and the reason is reported") {
  const auto check = [](auto&& harm, const char* why) {
    LockedFolder in_memory;
    auto& [storage, folder] = in_memory;
    save_steps(storage, folder, {500, 600});
    harm(storage);
    std::vector<CheckpointEntry> passed_over;
    const auto newest = folder.newest_whole(&passed_over);
    REQUIRE(newest);
    CHECK(newest->step == 500);
    REQUIRE(passed_over.size() == 1);
    CHECK(passed_over[0].step == 600);
    CHECK(!passed_over[0].whole);
    CHECK_MESSAGE(passed_over[0].why_not.find(why) != std::string::npos, passed_over[0].why_not);
    CHECK(folder.list().size() == 2);
    CHECK(folder.list()[1].why_not == passed_over[0].why_not);
    CHECK(folder.list()[0].whole);
  };
  const fs::path step = "/run/step-00000600", data = step / "rank-0001.data", manifest = step / "manifest.json";
  check([&](MemoryStorage& s) { REQUIRE(s.remove(data) == 0); }, "rank-0001.data: file not found");
  check([&](MemoryStorage& s) { s.damage(data, [](std::string& c) { c.pop_back(); }); },
        "rank-0001.data: wrong size: 8191 bytes instead of 8192");
  check([&](MemoryStorage& s) { s.damage(data, [](std::string& c) { c.push_back(' '); }); },
        "wrong size: 8193 bytes");
  check([&](MemoryStorage& s) { REQUIRE(s.remove(manifest) == 0); }, "manifest.json; use a complete checkpoint");
  check([&](MemoryStorage& s) { s.damage(manifest, [](std::string& c) { c[100] ^= 1; }); },
        "changed after it was written: checksum");
  check([&](MemoryStorage& s) { s.damage(manifest, [](std::string& c) { c.resize(100); }); },
        "no checksum at the end");
  check([&](MemoryStorage& s) { s.damage(manifest, [](std::string& c) { c.clear(); }); }, "no checksum at the end");
  check(
      [&](MemoryStorage& s) {
        s.damage(manifest, [](std::string& c) { c = to_json(SmallCheckpoint(700).manifest()); });
      },
      "another step: 700");
  check(
      [&](MemoryStorage& s) {
        s.damage(manifest, [](std::string& c) {
          c.resize(c.rfind("\"xxh3\""));
          c.replace(c.find("\"version\":1"), 11, "\"version\":2");
          c += fmt::format("\"xxh3\":\"{:016x}\"}}\n", runtime::xxh3(std::as_bytes(std::span(c))));
        });
      },
      "format version 2 is not supported, only 1");
  check(
      [&](MemoryStorage& s) {
        s.refuse = [&](const std::string& call, const fs::path& path) {
          return call == "read" && path == manifest ? -EIO : 0;
        };
      },
      "Input/output error");
}

TEST_CASE_FIXTURE(LockedFolder, "names in another format are not checkpoint steps") {
  for (const char* name : {"step-5", "step-000000005", "step-00000005.1", "step-00000005.x", "step-00000005.",
                           "step-", "step-99999999999999999999", "Step-00000005", "step-00000005.left"})
    REQUIRE(storage.make_folder(fs::path("/run") / name) == 0);
  CHECK(folder.list().empty());
  save_steps(storage, folder, {1'234'567'890});
  CHECK(folder.newest_whole()->path == "/run/step-1234567890");
}

TEST_CASE("the newest checkpoints and the archived ones stay") {
  struct Case {
    int keep;
    std::int64_t archive_every;
    std::vector<std::int64_t> removed;
  };
  for (const Case& each : {Case{1, 0, {400, 300, 200, 100}}, Case{2, 200, {300, 100}}, Case{9, 0, {}},
                           Case{3, 300, {200, 100}}, Case{1, 1, {}}}) {
    LockedFolder in_memory;
    auto& [storage, folder] = in_memory;
    save_steps(storage, folder, {100, 200, 300, 400, 500});
    CHECK(folder.prune(each.keep, each.archive_every) == each.removed);
    CHECK(folder.list().size() == 5 - each.removed.size());
    CHECK(folder.prune(each.keep, each.archive_every).empty());
  }
}

TEST_CASE("incomplete checkpoints do not count among those to keep") {
  MemoryStorage storage;
  {
    CheckpointFolder folder("/run", storage);
    folder.lock("aaaa");
    save_steps(storage, folder, {100, 200, 300, 400, 500});
  }
  for (const char* step : {"200", "500"})
    storage.damage(fmt::format("/run/step-00000{}/rank-0000.data", step), [](std::string& c) { c.pop_back(); });
  CheckpointFolder folder("/run", storage);
  CHECK(folder.prune(2, 0) == std::vector<std::int64_t>{200, 100});
  CHECK(folder.list().size() == 3);
  CHECK(folder.newest_whole()->step == 400);
}

TEST_CASE_FIXTURE(LockedFolder, "a run that resumes from an older checkpoint sets the later ones aside") {
  for (int line = 0; line < 3; ++line) {
    save_steps(storage, folder, {600, 700});
    save_steps(storage, folder, {650});
    CHECK(folder.newest_whole()->step == 650);
  }
  CHECK(names_in(storage, "/run") ==
        std::vector<std::string>{"lock", "step-00000600", "step-00000600.2", "step-00000600.3", "step-00000650",
                                 "step-00000650.left", "step-00000650.left2", "step-00000700.left",
                                 "step-00000700.left2", "step-00000700.left3"});
  // Until the run reaches their steps, they might still be needed.
  CHECK(folder.prune(2, 0) == std::vector<std::int64_t>{600, 600, 650, 650});
  REQUIRE(storage.make_folder("/run/step-00000600.left.old") == 0);
  save_steps(storage, folder, {690});
  CHECK(folder.prune(9, 0).empty());
  save_steps(storage, folder, {701});
  CHECK(folder.prune(9, 1) == std::vector<std::int64_t>{700, 700, 700});
  CHECK(names_in(storage, "/run") == std::vector<std::string>{"lock", "step-00000600.3", "step-00000600.left.old",
                                                              "step-00000650", "step-00000690", "step-00000701"});
}

TEST_CASE("insist() asks its callback whether to retry a commit that the disk refuses") {
  for (const char* refused : {"make_folder", "open", "write", "sync"}) {
    CAPTURE(refused);
    LockedFolder in_memory;
    auto& [storage, folder] = in_memory;
    int tries = 0;
    storage.refuse = [&](const std::string& call, const std::filesystem::path& path) {
      const bool is_new = call == "make_folder" || path.filename() == Manifest::file_name;
      return call == refused && is_new && tries < 3 ? -ENOSPC : 0;
    };
    folder.insist([&](const std::filesystem::path&, int error) {
      CHECK(error == ENOSPC);
      return ++tries < 5;
    });
    CHECK(SmallCheckpoint(500).save(storage, folder, "aaaa").empty());
    CHECK(tries == 3);
    CHECK(folder.newest_whole()->step == 500);
  }
}

TEST_CASE_FIXTURE(LockedFolder, "a checkpoint that does not match its manifest is never committed") {
  const SmallCheckpoint checkpoint(500);
  const fs::path part = folder.prepare(500, "aaaa");
  CHECK(
      says(error_of([&] { folder.commit(500, "aaaa", checkpoint.manifest()); }), "rank-0000.data: file not found"));
  REQUIRE(checkpoint.write_files(storage, part).empty());
  Manifest manifest = checkpoint.manifest();
  manifest.pieces.pop_back();
  CHECK(says(error_of([&] { folder.commit(500, "aaaa", manifest); }),
             "elements 0 to 10 of weights of ln are missing"));
  CHECK(folder.list().empty());
  folder.commit(500, "aaaa", checkpoint.manifest());
  CHECK(folder.newest_whole());
}
