// A blocked event loop, in a separate process: the watchdog ends it.
#include "actors/watch/watchdog.hpp"
#include "runtime/base/exit_code.hpp"
#include "runtime/loop/asio_loop.hpp"
#include "tests/doubles/transports.hpp"
#include "tests/temporary_folder.hpp"
#include "tests/words.hpp"

#include <doctest/doctest.h>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <thread>

using namespace ranvier;
using namespace ranvier::tests;
using namespace std::chrono_literals;

namespace {

constexpr runtime::Duration timeout = 400ms;

/// End of a process that runs `work` under the watchdog, on the loop or after it.
struct Ending {
  int status = -1;  ///< 128 + N after signal N
  std::string output;
};

Ending run_watched(const std::function<void(runtime::AsioLoop&, actors::Watchdog&)>& work) {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder.path() / "output";
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const int out = ::open(file.c_str(), O_WRONLY | O_CREAT, 0600);
    ::dup2(out, STDERR_FILENO);
    runtime::AsioLoop loop;
    LoneTransport transport;
    const runtime::Trace trace(0, loop);
    actors::Watchdog watchdog(loop, transport, trace,
                              {.timeout = timeout,
                               .peers = {},
                               .describe = [](int rank) { return fmt::format("rank {}", rank); },
                               .waits = nullptr,
                               .details = nullptr,
                               .waited_for = nullptr,
                               .heartbeat = [&loop] { return loop.heartbeat(); }});
    work(loop, watchdog);
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  std::ifstream output(file);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
          {std::istreambuf_iterator<char>(output), {}}};
}

}  // namespace

TEST_CASE("a handler that blocks for three timeouts is ended, by a thread of the watchdog") {
  const Ending ending = run_watched([](runtime::AsioLoop& loop, actors::Watchdog&) {
    loop.post([&loop] {
      std::this_thread::sleep_for(3 * timeout);
      loop.stop();
    });
    loop.run();
  });
  CAPTURE(ending.output);
  CHECK(ending.status == exit_code(ErrorCode::device));
  CHECK(ending.output.starts_with("ranvier: error: rank 0: the event loop made no progress for "));
  check_has(ending.output, {" s (`timeout`)\n"});
}

TEST_CASE("a loop that makes progress, or that the watchdog has left, is not ended") {
  const Ending ending = run_watched([](runtime::AsioLoop& loop, actors::Watchdog& watchdog) {
    for (int i = 1; i <= 6; ++i) loop.after(i * timeout / 2, [] { std::this_thread::sleep_for(timeout / 8); });
    loop.after(7 * timeout / 2, [&loop] { loop.stop(); });
    // Without pending work this rank would be idle.
    struct Disk final : runtime::ProgressSource {
      std::string place() const override { return "a disk"; }
      std::uint64_t done() const noexcept override { return ++moves; }
      mutable std::uint64_t moves = 0;
    } disk;
    const runtime::Handler end = loop.ends({"tiers", "a read of a file"}, disk, [] {});
    loop.run();
    watchdog.leave_loop();
    std::this_thread::sleep_for(3 * timeout);
  });
  CAPTURE(ending.output);
  CHECK(ending.status == 0);
  CHECK(ending.output.empty());
}
