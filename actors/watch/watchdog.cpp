#include "actors/watch/watchdog.hpp"

#include "runtime/error.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace ranvier::actors {

using runtime::Channel;
using runtime::Duration;
using runtime::Tag;
using runtime::Transport;

namespace {

constexpr Tag question_tag{Channel::control, 0};
constexpr Tag answer_tag{Channel::control, 1};
constexpr int patience = 4;  // timeouts that peers may wait for each other before somebody is named

std::string phrase(Tag tag) {
  switch (tag.channel) {
    case Channel::activation:
    case Channel::gradient:
      return fmt::format("the {} of microbatch {}", runtime::to_string(tag.channel), tag.index);
    case Channel::collective:
      return "a piece in a collective";
    case Channel::piece:
      return "a piece of parameters";
    case Channel::summary:
      return "what all ranks agree on after a batch";
    default:
      return "a message";
  }
}

/// What is always waited for says nothing.
bool stands(const Transport::Pending& pending) {
  return pending.tag.channel == Channel::control || (pending.tag.channel == Channel::pull && pending.receives);
}

double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

Watchdog::Watchdog(runtime::EventLoop& loop, Transport& transport, const runtime::Trace& trace, Options options)
    : loop_(&loop), transport_(&transport), trace_(&trace), options_(std::move(options)) {
  for (const int peer : options_.peers) peers_.emplace(peer, std::make_shared<Peer>());
  for (const auto& [peer, state] : peers_) listen(peer);
  tick();
  if (options_.heartbeat) thread_ = std::thread([this] { watch_loop(); });
}

Watchdog::~Watchdog() {
  *alive_ = false;
  stop_ = true;
  if (thread_.joinable()) thread_.join();
}

void Watchdog::listen(int peer) {
  const auto state = peers_.at(peer);
  transport_->receive(peer, question_tag, runtime::Bytes(&state->question, 1), [this, peer, state, alive = alive_] {
    if (!*alive) return;
    state->answer_to_send = own_state();
    transport_->send(peer, answer_tag, std::as_bytes(std::span(&state->answer_to_send, 1)),
                     [this, peer, state, alive] {
                       if (*alive) listen(peer);
                     });
  });
}

std::optional<Transport::Pending> Watchdog::oldest_pending() const {
  std::optional<Transport::Pending> oldest;
  for (const Transport::Pending& operation : pending()) {
    if (stands(operation)) continue;
    if (!oldest || operation.since < oldest->since) oldest = operation;
  }
  return oldest;
}

Watchdog::Answer Watchdog::own_state() const {
  const std::uint64_t progress = options_.progress();
  if (options_.computing()) return {State::computing, -1, progress};
  const auto oldest = oldest_pending();
  if (!oldest) return {State::idle, -1, progress};
  return {State::waiting, oldest->peer, progress};
}

std::string Watchdog::waits_for() const {
  const auto oldest = oldest_pending();
  if (options_.computing()) return "is computing, or writing files";
  return oldest ? wait_of(*oldest, options_.describe(oldest->peer)) : "has nothing to do and waits for nobody";
}

/// Time is counted in ticks, not by the clock: a process that was stopped and continued has not hung.
void Watchdog::judge_itself(Duration period) {
  const Answer state = own_state();
  const bool idle = state.state == State::idle && state.progress == progress_;
  progress_ = state.progress;
  idle_ = idle ? idle_ + period : Duration{};
  if (idle_ < options_.timeout) return;
  fail(ErrorCode::transport, "{} stands still: it {}, and nothing has moved for {:.1f} s (--timeout {:g})",
       options_.describe(transport_->rank()), waits_for(), seconds(idle_), seconds(options_.timeout));
}

std::vector<Transport::Pending> Watchdog::pending() const {
  auto all = transport_->pending();
  if (options_.waited_for) {
    const auto beside = options_.waited_for();
    all.insert(all.end(), beside.begin(), beside.end());
  }
  return all;
}

std::vector<Transport::Pending> Watchdog::overdue() const {
  std::vector<Transport::Pending> late;
  for (const Transport::Pending& operation : pending()) {
    if (stands(operation)) continue;
    if (loop_->now() - std::max(operation.since, computed_at_) < options_.timeout) continue;
    const auto known = std::find_if(late.begin(), late.end(), [&](const auto& l) { return l.peer == operation.peer; });
    if (known == late.end()) {
      late.push_back(operation);
    } else if (operation.since < known->since) {
      *known = operation;
    }
  }
  return late;
}

void Watchdog::tick() {
  const auto late = overdue();
  if (options_.computing()) computed_at_ = loop_->now();
  for (auto& [peer, state] : peers_) {
    const auto found = std::find_if(late.begin(), late.end(), [&, p = peer](const auto& l) { return l.peer == p; });
    if (found == late.end()) {
      state->asked = false;
    } else if (!state->asked) {
      ask(peer);
    } else {
      judge(peer, *found);
    }
  }
  const Duration period = std::clamp<Duration>(options_.timeout / 8, std::chrono::milliseconds(20),
                                               std::chrono::seconds(1));
  if (peers_.empty()) judge_itself(period);
  loop_->after(period, [this, alive = alive_] {
    if (*alive) tick();
  });
}

void Watchdog::ask(int peer) {
  const auto state = peers_.at(peer);
  state->asked = true;
  state->asked_at = loop_->now();
  if (state->answer_pending) return;  // the last question is still open
  state->answer_pending = true;
  static constexpr std::byte question{1};
  transport_->receive(peer, answer_tag, std::as_writable_bytes(std::span(&state->answer, 1)),
                      [state] { state->answer_pending = false; });
  transport_->send(peer, question_tag, runtime::ConstBytes(&question, 1), [] {});
}

std::string Watchdog::wait_of(const Transport::Pending& pending, const std::string& peer) const {
  const std::string under_way = options_.under_way ? options_.under_way() : std::string();
  return fmt::format("{} {} {} {} for {:.1f} s, tag '{}'{}{}",
                     pending.receives ? "has waited for" : "could not deliver", phrase(pending.tag),
                     pending.receives ? "from" : "to", peer, seconds(loop_->now() - pending.since),
                     runtime::to_string(pending.tag), under_way.empty() ? "" : ", in ", under_way);
}

void Watchdog::judge(int peer, const Transport::Pending& oldest) {
  Peer& state = *peers_.at(peer);
  const Duration since_question = loop_->now() - state.asked_at;
  const Duration grace = std::clamp<Duration>(options_.timeout / 2, std::chrono::milliseconds(500),
                                              std::chrono::seconds(5));
  const std::string what =
      fmt::format("{} {}", options_.describe(transport_->rank()), wait_of(oldest, "it"));
  if (state.answer_pending) {
    if (since_question < grace) return;
    fail(ErrorCode::transport, "{} does not answer: {} (--timeout {:g})", options_.describe(peer), what,
         seconds(options_.timeout));
  }
  switch (state.answer.state) {
    case State::computing:
      break;
    case State::idle:
      fail(ErrorCode::transport, "{} is alive and has nothing to do: {} (--timeout {:g})", options_.describe(peer),
           what, seconds(options_.timeout));
    case State::waiting:
      // Others may get their turn first, as long as something moves.
      if (state.answer.progress != state.progress) {
        state.progress = state.answer.progress;
        state.progress_at = loop_->now();
      }
      if (loop_->now() - std::max(oldest.since, state.progress_at) < patience * options_.timeout) break;
      fail(ErrorCode::transport, "{} is alive and waits for {}: {} (--timeout {:g})", options_.describe(peer),
           options_.describe(state.answer.waits_for), what, seconds(options_.timeout));
  }
  if (since_question >= options_.timeout) state.asked = false;  // ask again
}

void Watchdog::watch_loop() {
  using namespace std::chrono_literals;
  constexpr auto period = 100ms;
  // Counted in periods, not by the clock: a process that was stopped and continued has not hung.
  const auto limit = options_.timeout / period + 1;
  std::uint64_t last = options_.heartbeat();
  std::int64_t unchanged = 0;
  while (!stop_) {
    std::this_thread::sleep_for(period);
    const std::uint64_t now = options_.heartbeat();
    unchanged = now == last ? unchanged + 1 : 0;
    last = now;
    if (unchanged <= limit) continue;
    fmt::print(stderr, "ranvier: error: {}: the event loop has not moved for {:.0f} s (--timeout)\n{}\n",
               options_.describe(transport_->rank()), seconds(options_.timeout), trace_->tail(20));
    std::fflush(stderr);
    std::_Exit(EXIT_FAILURE);
  }
}

}  // namespace ranvier::actors
