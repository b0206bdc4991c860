#include "apps/job/stop_signals.hpp"

#include "runtime/base/error.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <future>
#include <optional>
#include <span>
#include <utility>

namespace ranvier::apps {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::array heard = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
constexpr runtime::Tag notice_tag{runtime::Channel::control, 64};  // tags below belong to the watchdog and NCCL
constexpr char last_word = 0;  // ends the thread; other bytes in the pipe are signal numbers

/// Write end of the pipe; global, since a signal handler has no other state.
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

/// Remark on mpirun's own reaction to the signal, which ranks cannot change.
const char* launcher_remark(int signal) {
  if (signal == SIGUSR1 || std::getenv("OMPI_COMM_WORLD_SIZE") == nullptr) return "";
  return " (after Ctrl-C, mpirun gives its ranks about a second; a second Ctrl-C loses unsaved work; to let the "
         "run save, use kill -USR1 on mpirun)";
}

}  // namespace

struct StopSignals::Attached {
  Listener listener;
  bool alive = true;                  // loop thread only
  std::vector<std::int32_t> notices;  // by rank: receive buffer of its signal number
  std::int32_t notice = 0;            // send buffer of this rank's signal number
};

StopSignals::StopSignals(int rank, Options options)
    : options_(std::move(options)), rank_(rank), before_(heard.size()) {
  if (::pipe2(pipe_.data(), O_CLOEXEC | O_NONBLOCK) != 0)
    fail(ErrorCode::io, "cannot create a pipe for signals: {}", std::strerror(errno));
  signal_pipe = pipe_[1];
  struct sigaction action{};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  for (std::size_t i = 0; i < heard.size(); ++i) {
    ::sigaction(heard[i], &action, &before_[i]);
    // Under nohup, the run continues when the terminal closes.
    if (heard[i] == SIGHUP && before_[i].sa_handler == SIG_IGN) ::sigaction(SIGHUP, &before_[i], nullptr);
  }
  thread_ = std::thread([this] { hear(); });
}

StopSignals::~StopSignals() {
  for (std::size_t i = 0; i < heard.size(); ++i) ::sigaction(heard[i], &before_[i], nullptr);
  static_cast<void>(!::write(pipe_[1], &last_word, 1));
  thread_.join();
  signal_pipe = -1;
  for (const int end : pipe_) ::close(end);
}

void StopSignals::attach(Listener listener) {
  const std::lock_guard lock(mutex_);
  attached_ = std::make_shared<Attached>(Attached{.listener = std::move(listener), .notices = {}});
  if (rank_ == 0) {
    const int ranks = attached_->listener.transport->ranks();
    attached_->notices.resize(static_cast<std::size_t>(ranks));
    for (int rank = 1; rank < ranks; ++rank) listen(rank);
  }
  if (!asked()) return;
  attached_->listener.request_stop();
  tell_rank_0();
}

void StopSignals::detach() {
  detaching_ = true;
  const std::lock_guard lock(mutex_);
  if (attached_) attached_->alive = false;
  attached_.reset();
  detaching_ = false;
}

void StopSignals::listen(int rank) {
  std::int32_t& notice = attached_->notices[static_cast<std::size_t>(rank)];
  attached_->listener.transport->receive(
      rank, notice_tag, std::as_writable_bytes(std::span(&notice, 1)), [this, rank, attached = attached_] {
        if (!attached->alive) return;
        acknowledge(attached->notices[static_cast<std::size_t>(rank)], rank, attached->listener.expected());
      });
}

void StopSignals::tell_rank_0() {
  if (rank_ == 0) return;
  attached_->notice = asked_;
  attached_->listener.transport->send(0, notice_tag, std::as_bytes(std::span(&attached_->notice, 1)),
                                      [attached = attached_] {});
}

void StopSignals::hear() {
  std::optional<Clock::time_point> asked;
  for (;;) {
    pollfd ready{.fd = pipe_[0], .events = POLLIN, .revents = 0};
    if (::poll(&ready, 1, -1) < 0 && errno != EINTR) return;
    char number = 0;
    if (::read(pipe_[0], &number, 1) != 1) continue;
    if (number == last_word) return;
    const std::lock_guard lock(mutex_);
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
  if (!attached_) return false;
  const auto done = std::make_shared<std::promise<void>>();
  attached_->listener.loop->post([what = std::move(what), done, attached = attached_] {
    if (attached->alive) what();
    done->set_value();
  });
  return done->get_future().wait_for(options_.loop_answers_within) == std::future_status::ready;
}

void StopSignals::first(int signal) {
  asked_ = signal;
  if (!attached_) {
    // Signals of other ranks take effect when all ranks agree.
    if (rank_ == 0) acknowledge(signal, 0, "the run ends before its next step");
    return;
  }
  const auto expected = std::make_shared<std::string>("training is complete");
  const bool moves = on_loop([this, expected] {
    *expected = attached_->listener.expected();
    attached_->listener.request_stop();
    tell_rank_0();
  });
  if (moves || detaching_) {
    if (rank_ == 0) acknowledge(signal, 0, *expected);
    return;
  }
  acknowledge(signal, rank_, "the run ends after its current step", ", whose event loop is blocked");
}

void StopSignals::again(int signal) {
  // A delay by rank, so that usually only the first rank prints before the job ends.
  std::this_thread::sleep_for(std::min(std::chrono::milliseconds(5000), rank_ * std::chrono::milliseconds(250)));
  const auto does = std::make_shared<std::string>(blocked());
  if (does->empty()) {
    *does = "is ending its run";
    const bool moves = on_loop([this, does] { *does = attached_->listener.waits_for(); });
    if (!attached_) {
      *does = "is not training";
    } else if (!moves && !detaching_) {
      *does = "has a blocked event loop";
    }
  }
  options_.print(fmt::format("ranvier: error: ended by a second {}, unsaved work is lost: {} {}\n", name_of(signal),
                             options_.describe(rank_), *does));
  options_.end(128 + signal);
}

void StopSignals::report() {
  if (const std::string blocked = this->blocked(); !blocked.empty())
    return options_.print(fmt::format("{} {}\n", options_.describe(rank_), blocked));
  if (!attached_) return options_.print(fmt::format("{} is not training\n", options_.describe(rank_)));
  const auto text = std::make_shared<std::string>();
  if (!on_loop([this, text] { *text = attached_->listener.report(); })) {
    if (detaching_) return options_.print(fmt::format("{} is ending its run\n", options_.describe(rank_)));
    *text = fmt::format("{} has a blocked event loop; its last recorded spans:\n{}", options_.describe(rank_),
                        attached_->listener.last_spans());
  }
  options_.print(*text);
}

void StopSignals::acknowledge(int signal, int rank, const std::string& expected, const char* remark) {
  if (acknowledged_.exchange(true) && *remark == '\0') return;
  const std::string cause = fmt::format("{} at {}{}", name_of(signal), options_.describe(rank), remark);
  options_.print(
      fmt::format("ranvier: {}: {}; another signal ends it at once{}\n", cause, expected, launcher_remark(signal)));
  if (options_.stopping) options_.stopping(cause, expected);
}

}  // namespace ranvier::apps
