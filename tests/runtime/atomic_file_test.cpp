#include "runtime/files/atomic_file.hpp"

#include "runtime/base/error.hpp"
#include "tests/test.hpp"

#include <unistd.h>

#include <cerrno>

using namespace ranvier;
using namespace ranvier::runtime;
using namespace ranvier::tests;

TEST_CASE_FIXTURE(InFolder, "a file appears only when it is committed, and then completely") {
  folder.write("f", "before");
  AtomicFile file(folder.path() / "f");
  file.append("af", 2);
  file.append("ter", 3);
  CHECK(folder.read("f") == "before");
  file.commit();
  CHECK(folder.read("f") == "after");
}

TEST_CASE_FIXTURE(InFolder, "an abandoned file leaves nothing behind") {
  {
    AtomicFile(folder.path() / "f").append("x", 1);
  }
  CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE_FIXTURE(InFolder, "a link stays a link when its file is replaced") {
  folder.write("target", "before");
  std::filesystem::create_symlink("target", folder.path() / "link");
  AtomicFile file(folder.path() / "link");
  file.append("after", 5);
  file.commit();
  CHECK(std::filesystem::is_symlink(folder.path() / "link"));
  CHECK(folder.read("target") == "after");
}

TEST_CASE("a device is written, not replaced") {
  AtomicFile file("/dev/null");
  file.append("x", 1);
  file.commit();
  CHECK(std::filesystem::is_character_file("/dev/null"));
}

TEST_CASE("a full disk is reported with file and offset") {
  if (!std::filesystem::exists("/dev/full")) return;
  AtomicFile file("/dev/full");
  const auto error = error_of([&] { file.append("x", 1); });
  CHECK(says(error, ErrorCode::io, "cannot write /dev/full at offset 0: No space left"));
}

TEST_CASE("the next writer removes a killed writer's partial file, and leaves all other files alone") {
  const TemporaryFolder folder;
  folder.write("f.123.partial", "partial file of a dead process");
  folder.write("f.123.probe", "");
  folder.write("g.123.partial", "partial file of another name");
  folder.write("f.old.partial", "unrelated file");
  folder.write("f.7.whole", "kept");
  AtomicFile living(folder.path() / "f");
  living.append("living", 6);
  const std::string own = fmt::format("f.{}.partial", ::getpid());
  std::filesystem::rename(folder.path() / own,
                          folder.path() / "f.77.partial");  // as if another process had written it
  AtomicFile next(folder.path() / "f");
  next.commit();
  CHECK_FALSE(std::filesystem::exists(folder.path() / "f.123.partial"));
  CHECK_FALSE(std::filesystem::exists(folder.path() / "f.123.probe"));
  for (const auto* kept : {"g.123.partial", "f.old.partial", "f.7.whole"}) {
    CAPTURE(kept);
    CHECK(std::filesystem::exists(folder.path() / kept));
  }
  CHECK(folder.read("f.77.partial") == "living");
}

TEST_CASE_FIXTURE(InFolder, "a file that another process is writing under the same name is left to that process") {
  AtomicFile first(folder.path() / "f");
  first.append("first", 5);
  CHECK(says(error_of([&] { const AtomicFile second(folder.path() / "f"); }), "cannot create "));
  first.commit();
  CHECK(folder.read("f") == "first");
}

TEST_CASE_FIXTURE(InFolder, "a complete file that cannot be renamed is kept, and the message says where") {
  AtomicFile file(folder.path() / "f");
  file.append("whole", 5);
  std::filesystem::create_directories(folder.path() / "f" / "in the way");
  const auto error = error_of([&] { file.commit(); });
  const std::string kept = fmt::format("f.{}.whole", ::getpid());
  CHECK(says(error, "complete in " + (folder.path() / kept).string()));
  CHECK(folder.read(kept) == "whole");
  {
    const AtomicFile other(folder.path() / "f");
  }
  CHECK(folder.read(kept) == "whole");
}

TEST_CASE_FIXTURE(InFolder, "creating or extending a file is retried for as long as the caller requests") {
  int asked = 0;
  AtomicFile file(folder.path() / "not yet" / "f", [&](const std::filesystem::path&, int error) {
    CHECK(error == ENOENT);
    if (++asked == 2) std::filesystem::create_directory(folder.path() / "not yet");
    return true;
  });
  file.commit();
  CHECK(asked == 2);
  CHECK(std::filesystem::exists(folder.path() / "not yet" / "f"));

  asked = 0;
  AtomicFile full("/dev/full", [&](const std::filesystem::path&, int) { return ++asked < 3; });
  CHECK(error_of([&] { full.append("x", 1); }).code() == ErrorCode::io);
  CHECK(asked == 3);
}

TEST_CASE_FIXTURE(InFolder, "a path can be checked for writing beforehand, and the check changes nothing") {
  const auto path = folder.write("there", "content");
  check_writable(path, "--save");
  check_writable(folder.path() / "new", "--save");
  check_writable("/dev/null", "--metrics");
  CHECK(folder.read("there") == "content");
  CHECK_FALSE(std::filesystem::exists(folder.path() / "new"));
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);

  CHECK(says(error_of([&] { check_writable(folder.path(), "--save"); }), ErrorCode::io, "--save", "is a folder"));
  CHECK(says(error_of([&] { check_writable(folder.path() / "none" / "f", "--trace"); }), "No such file"));
}
