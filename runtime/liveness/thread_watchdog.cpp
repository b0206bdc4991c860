#include "runtime/liveness/thread_watchdog.hpp"

#include "runtime/liveness/time_limits.hpp"

#include <fmt/format.h>

#include <sys/resource.h>

#include <fstream>
#include <utility>

namespace ranvier::runtime {

namespace {

/// Smallest CPU use that counts as work: 1/50 of a period. Threads that only wait, such as MPI's, use less.
constexpr int min_share = 50;
/// Bytes that a check itself, or a signal, reads and writes at most.
constexpr std::uint64_t noise_bytes = 1024;
/// Additional time without a heartbeat, since an idle loop has long periods.
constexpr Duration heartbeat_slack = std::chrono::milliseconds(200);

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

/// Work of the process so far, as counted by the system, without the calling thread's CPU time.
struct ProcessWork {
  Duration processor = processor_time(RUSAGE_SELF) - processor_time(RUSAGE_THREAD);
  std::uint64_t bytes = bytes_passed(), pages = pages_fetched();

  [[nodiscard]] bool exceeds(const ProcessWork& before, Duration period) const {
    return min_share * (processor - before.processor) >= period || bytes - before.bytes > noise_bytes ||
           pages != before.pages;
  }
};

}  // namespace

ThreadWatchdog::ThreadWatchdog(Options options)
    : options_(std::move(options)), owner_(std::this_thread::get_id()), thread_([this] { look(); }) {}

ThreadWatchdog::~ThreadWatchdog() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  over_.notify_all();
  thread_.join();
}

void ThreadWatchdog::begin(std::string& text, std::string value) {
  text = std::move(value);
  since_ = std::chrono::steady_clock::now();
}

void ThreadWatchdog::does(std::string what, int patience) {
  {
    const std::lock_guard lock(mutex_);
    part_.clear();
    whom_.clear();
    heartbeat_ = nullptr;
    quiet_ = {};
    patience_ = patience;
    begin(what_, std::move(what));
  }
  told_ = {};
  moved();
}

void ThreadWatchdog::about(std::string part) {
  {
    const std::lock_guard lock(mutex_);
    begin(part_, std::move(part));
  }
  moved();
}

void ThreadWatchdog::waits_for(std::string whom) {
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

void ThreadWatchdog::runs_loop(std::function<std::uint64_t()> heartbeat, std::function<std::string()> last_spans) {
  const std::lock_guard lock(mutex_);
  begin(what_, {});
  quiet_ = {};
  heartbeat_ = std::move(heartbeat);
  last_spans_ = std::move(last_spans);
}

void ThreadWatchdog::rests() { runs_loop(nullptr, nullptr); }

void ThreadWatchdog::moved() {
  moves_.fetch_add(1, std::memory_order_relaxed);
  if (std::this_thread::get_id() != owner_ || !options_.tell) return;
  const auto now = std::chrono::steady_clock::now();
  if (now - told_ < options_.tell_every) return;
  told_ = now;
  options_.tell();
}

std::string ThreadWatchdog::doing() const {
  const std::lock_guard lock(mutex_);
  return what_.empty() ? std::string() : text();
}

std::string ThreadWatchdog::text() const {
  const double age = seconds(std::chrono::steady_clock::now() - since_);
  if (!whom_.empty()) return fmt::format("{}: waits for {:.1f} s for {}", what_, age, whom_);
  return fmt::format("{}{}{}, for {:.1f} s", what_, part_.empty() ? "" : ": ", part_, age);
}

void ThreadWatchdog::look() {
  const Duration timeout = options_.timeout, period = check_period(timeout);
  ProcessWork before;
  std::uint64_t worked = 0;
  std::unique_lock lock(mutex_);
  while (!over_.wait_for(lock, period, [this] { return stop_; })) {
    std::string why;
    if (heartbeat_) {
      if (quiet_.check(heartbeat_(), period) < timeout + heartbeat_slack) continue;
      why = fmt::format("{}: the event loop made no progress for {:.0f} s (`timeout`)\n{}", options_.who,
                        seconds(timeout), last_spans_());
    } else {
      const ProcessWork now;
      worked += now.exceeds(before, period) ? 1 : 0;
      before = now;
      quiet_.check(moves_ + worked, period);
      if (what_.empty()) quiet_.reset();
      if (quiet_.time() < patience_ * timeout) continue;
      why = fmt::format("{} stands still: it {}, and nothing has moved for {:.1f} s (`timeout` {:g})", options_.who,
                        text(), seconds(quiet_.time()), seconds(timeout));
    }
    lock.unlock();
    return options_.end(why);
  }
}

}  // namespace ranvier::runtime
