#include "runtime/files/record_file.hpp"

#include "runtime/base/error.hpp"
#include "tests/test.hpp"

#include <sys/resource.h>

#include <cerrno>
#include <csignal>

using namespace ranvier;
using namespace ranvier::runtime;
using namespace ranvier::tests;
using Start = RecordFile::Start;

namespace {

/// Limits the size of every file of this process to `bytes` while it lives.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) : before_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &limit_);
    const rlimit small{bytes, limit_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
  }
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &limit_);
    std::signal(SIGXFSZ, before_);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  rlimit limit_{};
  void (*before_)(int);
};

}  // namespace

TEST_CASE_FIXTURE(InFolder, "a record file starts from scratch or after existing records") {
  const std::string path = folder.write("log", "one\n").string();
  RecordFile("log", path, Start::after_existing).append("two\n");
  CHECK(folder.read("log") == "one\ntwo\n");
  RecordFile("log", path, Start::from_scratch).append("three\n");
  CHECK(folder.read("log") == "three\n");
}

TEST_CASE_FIXTURE(InFolder, "a record file ends an incomplete last line before the first record") {
  const std::string path = folder.write("log", "one\nha").string();
  RecordFile("log", path, Start::after_existing).append("two\n");
  CHECK(folder.read("log") == "one\nha\ntwo\n");
}

TEST_CASE_FIXTURE(InFolder, "a record file that cannot be opened is refused by name") {
  const auto path = folder.path() / "none" / "log";
  const auto error = error_of([&] { RecordFile("--metrics", path, Start::from_scratch); });
  CHECK(says(error, ErrorCode::io, "--metrics: No such file or directory"));
}

TEST_CASE_FIXTURE(InFolder, "records that a full disk refuses are held, and written once there is space") {
  RecordFile file("log", folder.path() / "log", Start::from_scratch);
  file.append("0123456789\n");
  CHECK(file.loss().empty());
  {
    const FullDisk full(25);
    file.append("abcdefghij\n");
    file.append("klmnopqrst\n");  // would exceed the limit
    file.append("uvwxyz\n");
    CHECK(file.loss() == "2 records of log were not written: File too large");
    CHECK(file.held_bytes() == 18);
    CHECK(folder.read("log") == "0123456789\nabcdefghij\n");  // complete records only
  }
  file.append("there\n");
  CHECK(folder.read("log") == "0123456789\nabcdefghij\nklmnopqrst\nuvwxyz\nthere\n");
  CHECK(file.loss().empty());
}

TEST_CASE("the last attempt tries again after each refusal, until there is space or the retry gives up") {
  const TemporaryFolder folder;
  RecordFile file("log", folder.path() / "log", Start::from_scratch);
  int refusals = 0;
  {
    const FullDisk full(3);
    file.append("0123\n");
    file.finish([&](const std::filesystem::path&, int error) {
      CHECK(error == EFBIG);
      return ++refusals < 3;
    });
    CHECK(file.loss() == "1 record of log was not written: File too large");
  }
  CHECK(refusals == 3);
  file.finish(nullptr);
  CHECK(file.loss().empty());
  CHECK(folder.read("log") == "0123\n");
}

TEST_CASE_FIXTURE(InFolder, "records beyond the memory limit are lost and counted") {
  RecordFile file("log", folder.path() / "log", Start::from_scratch);
  {
    const FullDisk full(0);
    file.append(std::string(RecordFile::max_held_bytes - 1, 'x') + '\n');
    file.append("lost\n");
  }
  file.append("kept\n");
  CHECK(file.loss() == "1 record of log was not written: File too large");
  CHECK(std::filesystem::file_size(file.path()) == RecordFile::max_held_bytes + 5);
}
