#include "runtime/log_file.hpp"

#include "runtime/error.hpp"
#include "tests/errors.hpp"
#include "tests/temporary_folder.hpp"

#include <doctest/doctest.h>
#include <fmt/core.h>

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <string>

using namespace ranvier;
using namespace ranvier::runtime;
using ranvier::tests::error_of;
using ranvier::tests::says;
using ranvier::tests::TemporaryFolder;

namespace {

/// No file of this process grows beyond so many bytes while it lives.
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

TEST_CASE("a log begins anew or goes on after what is there") {
  const TemporaryFolder folder;
  const std::string path = folder.write("log", "one\n").string();
  LogFile("log", path, LogFile::Start::after).write("two\n");
  CHECK(folder.read("log") == "one\ntwo\n");
  LogFile("log", path, LogFile::Start::anew).write("three\n");
  CHECK(folder.read("log") == "three\n");
}

TEST_CASE("a log goes on in a line of its own after half a line") {
  const TemporaryFolder folder;
  const std::string path = folder.write("log", "one\nha").string();
  LogFile("log", path, LogFile::Start::after).write("two\n");
  CHECK(folder.read("log") == "one\nha\ntwo\n");
}

TEST_CASE("a log that cannot be opened is refused by name") {
  const TemporaryFolder folder;
  const std::string path = (folder.path() / "none" / "log").string();
  const auto error = error_of([&] { LogFile("--metrics", path, LogFile::Start::after); });
  CHECK(error.code() == ErrorCode::io);
  CHECK(says(error, "--metrics: No such file or directory: choose"));
}

TEST_CASE("a full disk costs lines and nothing else, whole ones, and the log goes on when there is space") {
  const TemporaryFolder folder;
  LogFile log("log", (folder.path() / "log").string(), LogFile::Start::anew);
  log.write("0123456789\n");
  CHECK(log.loss().empty());
  {
    const FullDisk full(25);
    log.write("abcdefghij\nklmnopqrst\n");  // the second line would end behind the limit
    CHECK(log.lost_lines() == 1);
    log.write("uvwxyz\n");
  }
  CHECK(folder.read("log") == "0123456789\nabcdefghij\n");
  log.write("there\n");
  CHECK(folder.read("log") == "0123456789\nabcdefghij\nthere\n");
  CHECK(log.loss() == "2 lines of log were not written: File too large");
}

TEST_CASE("what is printed to a full device or a closed pipe fails nobody and is counted") {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  ::close(ends[0]);
  for (const int broken : {ends[1], ::open("/dev/full", O_WRONLY)}) {
    REQUIRE(broken >= 0);
    std::fflush(stdout);
    const int before = ::dup(STDOUT_FILENO);
    REQUIRE(::dup2(broken, STDOUT_FILENO) >= 0);
    std::string loss;
    {
      const StandardOutput output;
      for (int line = 0; line < 3; ++line) fmt::print("{}\n", std::string(10'000, 'x'));
      std::fflush(stdout);
      loss = output.loss();
    }
    REQUIRE(::dup2(before, STDOUT_FILENO) >= 0);
    ::close(before);
    ::close(broken);
    CHECK(loss.find(" of the standard output were not written: ") != std::string::npos);
    CHECK(loss.find(broken == ends[1] ? "Broken pipe" : "No space left on device") != std::string::npos);
  }
}
