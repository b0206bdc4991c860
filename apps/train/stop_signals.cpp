#include "apps/train/stop_signals.hpp"

#include "runtime/error.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <future>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace ranvier::apps {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::array heard = {SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
constexpr runtime::Tag notice_tag{runtime::Channel::control, 64};  // after the watchdog's and NCCL's
constexpr char last_word = 0;                                      // in the pipe, where numbers of signals are

/// Where the handler writes: a handler knows nothing but what is global.
std::atomic<int> signal_pipe{-1};

void on_signal(int signal) {
  const int error = errno;
  const char number = static_cast<char>(signal);
  static_cast<void>(!::write(signal_pipe, &number, 1));
  errno = error;
}

std::string name_of(int signal) {
  const char* const name = ::sigabbrev_np(signal);
  return name != nullptr ? std::string("SIG") + name : fmt::format("signal {}", signal);
}

/// What mpirun does of its own, which no rank can change.
const char* launcher_remark(int signal) {
  if (signal == SIGUSR1 || std::getenv("OMPI_COMM_WORLD_SIZE") == nullptr) return "";
  return " (a second Ctrl-C of mpirun loses the weights, and after the first it gives its ranks about a second: "
         "kill -USR1 of mpirun leaves them their time)";
}

}  // namespace

struct StopSignals::Shared {
  std::atomic<bool> alive{true};
  std::vector<std::int32_t> notices;  // by rank: where its signal arrives
  std::int32_t notice = 0;            // that this rank sends
  std::array<int, 2> pipe{-1, -1};
  std::array<struct sigaction, heard.size()> before{};
};

StopSignals::StopSignals(runtime::EventLoop& loop, runtime::Transport& transport, Options options)
    : loop_(&loop),
      transport_(&transport),
      options_(std::move(options)),
      rank_(transport.rank()),
      shared_(std::make_shared<Shared>()) {
  if (rank_ == 0) {
    shared_->notices.resize(static_cast<std::size_t>(transport.ranks()));
    for (int rank = 1; rank < transport.ranks(); ++rank) listen(rank);
  }
  if (::pipe2(shared_->pipe.data(), O_CLOEXEC | O_NONBLOCK) != 0)
    fail(ErrorCode::io, "no pipe for signals can be made: {}", std::strerror(errno));
  signal_pipe = shared_->pipe[1];
  struct sigaction action{};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  for (std::size_t i = 0; i < heard.size(); ++i) ::sigaction(heard[i], &action, &shared_->before[i]);
  thread_ = std::thread([this] { hear(); });
}

StopSignals::~StopSignals() {
  for (std::size_t i = 0; i < heard.size(); ++i) ::sigaction(heard[i], &shared_->before[i], nullptr);
  shared_->alive = false;
  static_cast<void>(!::write(shared_->pipe[1], &last_word, 1));
  thread_.join();
  signal_pipe = -1;
  for (const int end : shared_->pipe) ::close(end);
}

void StopSignals::listen(int rank) {
  std::int32_t& notice = shared_->notices[static_cast<std::size_t>(rank)];
  transport_->receive(rank, notice_tag, std::as_writable_bytes(std::span(&notice, 1)),
                      [this, rank, shared = shared_] {
                        if (!shared->alive) return;
                        acknowledge(shared->notices[static_cast<std::size_t>(rank)], rank);
                      });
}

void StopSignals::hear() {
  std::optional<Clock::time_point> asked;
  for (;;) {
    pollfd ready{.fd = shared_->pipe[0], .events = POLLIN, .revents = 0};
    if (::poll(&ready, 1, -1) < 0 && errno != EINTR) return;
    char number = 0;
    if (::read(shared_->pipe[0], &number, 1) != 1) continue;
    if (number == last_word) return;
    if (number == SIGUSR2) {
      report();
      continue;
    }
    if (!asked) {
      asked = Clock::now();
      first(number);
    } else if (Clock::now() - *asked >= options_.same_request) {
      again(number);
    }
  }
}

bool StopSignals::on_loop(std::function<void()> what) {
  const auto done = std::make_shared<std::promise<void>>();
  loop_->post([what = std::move(what), done, shared = shared_] {
    if (shared->alive) what();
    done->set_value();
  });
  return done->get_future().wait_for(options_.loop_answers_within) == std::future_status::ready;
}

void StopSignals::first(int signal) {
  if (rank_ == 0) acknowledge(signal, 0);
  const bool moves = on_loop([this, signal] {
    options_.request_stop();
    if (rank_ == 0) return;
    shared_->notice = signal;
    transport_->send(0, notice_tag, std::as_bytes(std::span(&shared_->notice, 1)), [shared = shared_] {});
  });
  if (!moves && shared_->alive) acknowledge(signal, rank_, ", whose event loop does not move");
}

void StopSignals::again(int signal) {
  // Each rank waits longer than the one before it could need to be heard, and is usually ended meanwhile.
  std::this_thread::sleep_for(std::min(std::chrono::milliseconds(5000), rank_ * std::chrono::milliseconds(250)));
  const auto waits_for = std::make_shared<std::string>();
  const bool moves = on_loop([this, waits_for] { *waits_for = options_.waits_for(); });
  options_.say(fmt::format("ranvier: error: ended by a second {}, without what was not saved yet: {} {}\n",
                           name_of(signal), options_.describe(rank_),
                           moves ? *waits_for : std::string("has an event loop that does not move")));
  options_.end(128 + signal);
}

void StopSignals::report() {
  const auto text = std::make_shared<std::string>();
  if (!on_loop([this, text] { *text = options_.report(); })) {
    *text = fmt::format("{} has an event loop that does not move; the last that it recorded:\n{}",
                        options_.describe(rank_), options_.last_spans());
  }
  options_.say(*text);
}

void StopSignals::acknowledge(int signal, int rank, const char* remark) {
  if (acknowledged_.exchange(true) && *remark == '\0') return;
  options_.say(fmt::format("ranvier: {} at {}{}: {}; another signal ends it at once{}\n", name_of(signal),
                           options_.describe(rank), remark, options_.expected(), launcher_remark(signal)));
}

}  // namespace ranvier::apps
