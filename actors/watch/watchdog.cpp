#include "actors/watch/watchdog.hpp"

#include "runtime/base/error.hpp"

#include <algorithm>
#include <limits>

namespace ranvier::actors {

using runtime::Channel;
using runtime::Duration;
using runtime::seconds;
using runtime::Tag;
using runtime::Transport;

namespace {

constexpr Tag question_tag{Channel::control, 0};
constexpr Tag answer_tag{Channel::control, 1};
/// A gap of more ticks than this means that the process was stopped (SIGSTOP), not late.
constexpr int stopped_ticks = 10;
constexpr std::size_t max_lines = 12;  // lines per list of a report
constexpr std::size_t last_spans = 10;

std::string phrase(Tag tag) {
  switch (tag.channel) {
    case Channel::activation:
    case Channel::gradient:
      return fmt::format("the {} of microbatch {}", runtime::to_string(tag.channel), tag.index);
    case Channel::collective:
      return "a collective chunk";
    case Channel::matrix:
      return "updates of matrices";
    case Channel::piece:
      return "a shard of parameters";
    case Channel::summary:
      return "the agreement of all ranks after a batch";
    case Channel::checkpoint:
      return tag.index == 0 ? "the start signal of a checkpoint" : "a rank's list of written checkpoint segments";
    default:
      return "a message";
  }
}

/// Receives that are always posted; they do not count as waits.
bool stands(const Transport::Pending& pending) {
  return pending.tag.channel == Channel::control || (pending.tag.channel == Channel::pull && pending.receives);
}

}  // namespace

Watchdog::Watchdog(runtime::EventLoop& loop, Transport& transport, const runtime::Trace& trace, Options options)
    : loop_(&loop),
      transport_(&transport),
      trace_(&trace),
      options_(std::move(options)),
      period_(runtime::check_period(options_.timeout)),
      own_(loop.pending_work(), loop, options_.details),
      last_tick_(loop.now()) {
  for (const int peer : options_.peers) peers_.emplace(peer, std::make_shared<Peer>());
  for (const auto& [peer, state] : peers_) listen(peer);
  tick();
}

Watchdog::~Watchdog() { *alive_ = false; }

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
  const auto all = pending();
  const auto oldest = std::ranges::min_element(all, {}, &Transport::Pending::since);
  return oldest == all.end() ? std::nullopt : std::optional(*oldest);
}

std::uint64_t Watchdog::progress() { return own_.progress() + transport_->completed(); }

Watchdog::Answer Watchdog::own_state() {
  Answer mine;
  mine.idle_hops = idle_hops_;
  mine.news[0] = {transport_->rank(), progress()};
  std::vector<std::pair<int, PeerStatus>> latest(heard_.begin(), heard_.end());
  std::ranges::stable_sort(latest, [](const auto& a, const auto& b) { return a.second.at > b.second.at; });
  for (std::size_t i = 0; i < std::min(latest.size(), mine.news.size() - 1); ++i)
    mine.news[i + 1] = {latest[i].first, latest[i].second.progress};
  if (loop_->pending_work().any()) {
    mine.state = State::computing;
  } else if (const auto oldest = oldest_pending()) {
    mine.state = State::waiting;
    mine.waits_for = oldest->peer;
  }
  return mine;
}

bool Watchdog::take_news(Peer& peer) {
  bool any = false;
  for (const News& news : peer.answer.news) {
    if (news.rank < 0 || news.rank == transport_->rank()) continue;
    const auto [known, is_new] = peer.news.try_emplace(news.rank, news.progress);
    any = any || is_new || news.progress > known->second;
    known->second = std::max(known->second, news.progress);
    PeerStatus& heard = heard_[news.rank];
    if (news.progress > heard.progress) heard = {news.progress, time_};
  }
  return any;
}

std::string Watchdog::waits_for() const {
  if (const std::string own = own_.describe(); !own.empty()) return "is at work: " + own;
  const auto oldest = oldest_pending();
  return oldest ? wait_of(*oldest, options_.describe(oldest->peer)) : "is idle and waits for no rank";
}

std::string Watchdog::report() const {
  std::string text = fmt::format("{} {}\n", options_.describe(transport_->rank()), waits_for());
  const auto list = [&text](const char* title, const std::vector<std::string>& lines) {
    for (std::size_t i = 0; i < std::min(lines.size(), max_lines); ++i)
      text += fmt::format("  {:<10}{}\n", i == 0 ? title : "", lines[i]);
    if (lines.size() > max_lines) text += fmt::format("            and {} more\n", lines.size() - max_lines);
  };
  std::vector<std::string> waits, messages;
  const auto age = [this](Duration since) { return seconds(loop_->now() - since); };
  if (options_.waits) {
    for (const Wait& wait : options_.waits())
      waits.push_back(fmt::format("{}{}, for {:.1f} s", wait.what,
                                  wait.rank ? ", from " + options_.describe(*wait.rank) : "", age(wait.since)));
  }
  auto operations = pending();
  std::ranges::sort(operations, {}, &Transport::Pending::since);
  for (const Transport::Pending& operation : operations)
    messages.push_back(fmt::format("{} {} {}, tag '{}', {} bytes, for {:.1f} s", phrase(operation.tag),
                                   operation.receives ? "from" : "to", options_.describe(operation.peer),
                                   runtime::to_string(operation.tag), operation.bytes, age(operation.since)));
  list("at work", own_.lines());
  list("waits for", waits);
  list("messages", messages);
  return text + trace_->tail(last_spans);
}

void Watchdog::judge_itself() {
  if (const auto stuck = own_.stuck(period_, options_.timeout)) {
    fail(ErrorCode::device, "{} stands still: {} (`timeout` {:g})", options_.describe(transport_->rank()), *stuck,
         seconds(options_.timeout));
  }
  if (options_.at_work) {
    if (loop_->pending_work().any()) options_.at_work();
    return;
  }
  idle_.check(progress(), period_);
  if (own_state().state != State::idle) idle_.reset();
  look_around();
  if (idle_hops_ <= transport_->ranks()) return;
  fail(ErrorCode::transport, "{} stands still: it {}{}; no progress for {:.1f} s (`timeout` {:g})",
       options_.describe(transport_->rank()), waits_for(), peers_.empty() ? "" : ", like all other ranks",
       seconds(idle_.time()), seconds(options_.timeout));
}

void Watchdog::look_around() {
  if (idle_.time() < options_.timeout) {
    idle_hops_ = 0;
    for (auto& [peer, state] : peers_) state->answer.idle_hops = 0;
    return;
  }
  // A peer may be idle while peers further away still work.
  std::int32_t around = std::numeric_limits<std::int32_t>::max() - 1;
  for (const auto& [peer, state] : peers_) {
    around = std::min(around, state->answer.idle_hops);
    if (!state->answer_pending) ask(peer);
  }
  idle_hops_ = 1 + around;
}

std::vector<Transport::Pending> Watchdog::pending() const {
  auto all = transport_->pending();
  if (options_.waited_for) {
    const auto beside = options_.waited_for();
    all.insert(all.end(), beside.begin(), beside.end());
  }
  std::erase_if(all, stands);
  return all;
}

std::map<int, Transport::Pending> Watchdog::overdue() const {
  std::map<int, Transport::Pending> late;
  for (const Transport::Pending& operation : pending()) {
    if (loop_->now() - std::max(operation.since, began_waiting_) < options_.timeout) continue;
    Transport::Pending& oldest = late.try_emplace(operation.peer, operation).first->second;
    if (operation.since < oldest.since) oldest = operation;
  }
  return late;
}

void Watchdog::tick() {
  const Duration now = loop_->now();
  if (now - std::exchange(last_tick_, now) > stopped_ticks * period_ + std::chrono::seconds(1)) {
    began_waiting_ = now;
    for (auto& [peer, state] : peers_) state->asked_at.reset();
  }
  time_ += period_;
  const auto late = overdue();
  if (loop_->pending_work().any()) began_waiting_ = now;
  for (auto& [peer, state] : peers_) {
    const auto found = late.find(peer);
    if (found == late.end()) {
      state->asked_at.reset();
    } else if (!state->asked_at) {
      state->news_at = time_;
      state->idle_at.reset();
      ask(peer);
    } else {
      judge(peer, found->second);
    }
  }
  judge_itself();
  loop_->after(period_, [this, alive = alive_] {
    if (*alive) tick();
  });
}

void Watchdog::ask(int peer) {
  const auto state = peers_.at(peer);
  state->asked_at = time_;
  if (state->answer_pending) return;  // the previous request is unanswered
  state->answer_pending = true;
  static constexpr std::byte question{1};
  transport_->receive(peer, answer_tag, std::as_writable_bytes(std::span(&state->answer, 1)),
                      [state] { state->answer_pending = false; });
  transport_->send(peer, question_tag, runtime::ConstBytes(&question, 1), [] {});
}

std::string Watchdog::under_way() const {
  std::string text;
  if (!options_.waits) return text;
  for (const Wait& wait : options_.waits()) text += (text.empty() ? "" : "; ") + wait.what;
  if (text.empty() || trace_->step() == 0) return text;
  return fmt::format("step {}: {}", trace_->step(), text);
}

std::string Watchdog::wait_of(const Transport::Pending& pending, const std::string& peer) const {
  const std::string in = under_way();
  return fmt::format("{} {} {} {} for {:.1f} s, tag '{}'{}{}",
                     pending.receives ? "has waited for" : "could not deliver", phrase(pending.tag),
                     pending.receives ? "from" : "to", peer, seconds(loop_->now() - pending.since),
                     runtime::to_string(pending.tag), in.empty() ? "" : ", in ", in);
}

void Watchdog::judge(int peer, const Transport::Pending& oldest) {
  Peer& state = *peers_.at(peer);
  const Duration grace =
      std::clamp<Duration>(options_.timeout / 2, std::chrono::milliseconds(500), std::chrono::seconds(5));
  const std::string what = fmt::format("{} {}", options_.describe(transport_->rank()), wait_of(oldest, "it"));
  const double timeout = seconds(options_.timeout);
  if (state.answer_pending) {
    if (time_ - *state.asked_at < grace) return;
    fail(ErrorCode::transport, "{} does not answer: {} (`timeout` {:g})", options_.describe(peer), what, timeout);
  }
  const Answer& answer = state.answer;
  if (take_news(state) || answer.state == State::computing) state.news_at = time_;
  if (answer.state != State::idle) {
    state.idle_at.reset();
  } else if (!state.idle_at) {
    state.idle_at = time_;
  }
  // Its sends may be in flight, and its receives not yet handled.
  if (state.idle_at && time_ - std::max(state.news_at, *state.idle_at) >= options_.timeout / 2) {
    fail(ErrorCode::transport, "{} is alive but idle: {} (`timeout` {:g})", options_.describe(peer), what, timeout);
  }
  // Ranks that wait for each other fail first; ranks that wait for them have twice the patience.
  const int factor = answer.waits_for == transport_->rank() ? 1 : 2;
  const Duration limit = factor * runtime::waiting_patience * options_.timeout;
  if (answer.state == State::waiting && time_ - state.news_at >= limit) {
    fail(ErrorCode::transport,
         "{} is alive and waits for {}, with no progress there for {:.1f} s: {} (`timeout` {:g})",
         options_.describe(peer), options_.describe(answer.waits_for), seconds(time_ - state.news_at), what,
         timeout);
  }
  ask(peer);
}

}  // namespace ranvier::actors
