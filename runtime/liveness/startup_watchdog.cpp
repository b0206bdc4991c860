#include "runtime/liveness/startup_watchdog.hpp"

#include <fmt/format.h>

#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <utility>

namespace ranvier::runtime {

namespace {

/// Smallest CPU use that counts as work: 1/50 of a period. Threads that only wait, such as MPI's, use less.
constexpr int min_share = 50;
/// Bytes that a check itself, or a signal, reads and writes at most.
constexpr std::uint64_t noise_bytes = 1024;

Duration processor_time(int who) {
  struct rusage usage{};
  if (::getrusage(who, &usage) != 0) return {};
  const auto of = [](const timeval& time) {
    return std::chrono::seconds(time.tv_sec) + std::chrono::microseconds(time.tv_usec);
  };
  return of(usage.ru_utime) + of(usage.ru_stime);
}

/// Bytes read and written by system calls, page cache included.
std::uint64_t bytes_passed() {
  std::ifstream counts("/proc/self/io");
  std::uint64_t bytes = 0, value = 0;
  for (std::string name; counts >> name >> value;)
    if (name == "rchar:" || name == "wchar:") bytes += value;
  return bytes;
}

std::uint64_t pages_fetched() {
  struct rusage usage{};
  return ::getrusage(RUSAGE_SELF, &usage) == 0 ? static_cast<std::uint64_t>(usage.ru_majflt) : 0;
}

}  // namespace

/// Work of the process so far, as counted by the system, without the calling thread's CPU time.
struct StartupWatchdog::Account {
  Duration processor{};
  std::uint64_t bytes = 0, pages = 0;
};

StartupWatchdog::Account StartupWatchdog::account() {
  return {processor_time(RUSAGE_SELF) - processor_time(RUSAGE_THREAD), bytes_passed(), pages_fetched()};
}

StartupWatchdog::StartupWatchdog(Options options)
    : options_(std::move(options)), owner_(std::this_thread::get_id()), thread_([this] { look(); }) {}

StartupWatchdog::~StartupWatchdog() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  over_.notify_all();
  thread_.join();
}

void StartupWatchdog::begin(std::string& text, std::string value) {
  text = std::move(value);
  since_ = std::chrono::steady_clock::now();
}

void StartupWatchdog::does(std::string what, int patience) {
  {
    const std::lock_guard lock(mutex_);
    part_.clear();
    whom_.clear();
    patience_ = patience;
    begin(what_, std::move(what));
  }
  told_ = {};
  moved();
}

void StartupWatchdog::about(std::string part) {
  {
    const std::lock_guard lock(mutex_);
    begin(part_, std::move(part));
  }
  ++parts_;
  moved();
}

void StartupWatchdog::waits_for(std::string whom) {
  {
    const std::lock_guard lock(mutex_);
    if (whom.empty() || whom_.empty()) {
      begin(whom_, std::move(whom));
    } else {
      whom_ = std::move(whom);  // continues the same wait
    }
  }
  moved();
}

void StartupWatchdog::rests() {
  const std::lock_guard lock(mutex_);
  begin(what_, {});
}

void StartupWatchdog::moved() {
  moves_.fetch_add(1, std::memory_order_relaxed);
  if (std::this_thread::get_id() != owner_ || !options_.tell) return;
  const auto now = std::chrono::steady_clock::now();
  if (now - told_ < options_.tell_every) return;
  told_ = now;
  options_.tell();
}

std::string StartupWatchdog::doing() const {
  const std::lock_guard lock(mutex_);
  return what_.empty() ? std::string() : text();
}

std::string StartupWatchdog::text() const {
  const double age = seconds(std::chrono::steady_clock::now() - since_);
  if (!whom_.empty()) return fmt::format("{}: waits for {:.1f} s for {}", what_, age, whom_);
  return fmt::format("{}{}{}, for {:.1f} s", what_, part_.empty() ? "" : ": ", part_, age);
}

void StartupWatchdog::look() {
  const auto period =
      std::clamp<Duration>(options_.timeout / 8, std::chrono::milliseconds(20), std::chrono::seconds(1));
  Account before = account();
  std::uint64_t moves = 0;
  Duration quiet{};
  std::unique_lock lock(mutex_);
  while (!over_.wait_for(lock, period, [this] { return stop_; })) {
    if (what_.empty()) {
      quiet = {};
      continue;
    }
    const Account now = account();
    const std::uint64_t counted = moves_.load(std::memory_order_relaxed);
    const bool moved = counted != moves || min_share * (now.processor - before.processor) >= period ||
                       now.bytes - before.bytes > noise_bytes || now.pages != before.pages;
    before = now;
    moves = counted;
    quiet = moved ? Duration() : quiet + period;
    if (quiet < patience_ * options_.timeout) continue;
    const std::string why =
        fmt::format("{} stands still: it {}, and nothing has moved for {:.1f} s (`timeout` {:g})", options_.who,
                    text(), seconds(quiet), seconds(options_.timeout));
    lock.unlock();
    return options_.end(why);
  }
}

}  // namespace ranvier::runtime
