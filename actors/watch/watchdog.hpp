// Nobody hangs for ever. Three watches, one for each way to hang:
//
//   its own work   where a stream or a file of this rank has work and nothing has moved for the timeout, this rank ends
//                  the job (stall_detector.hpp). So does a rank that learns that nothing is under way and nothing awaited
//                  any more, here or on any other rank.
//   the peers      a message that is waited for longer than the timeout makes this rank ask its peer whether it lives.
//                  A peer that does not answer, or answers that it has nothing to do, is named in an Error. One that
//                  waits itself passes on what those that it waits for have got done, and they likewise: as long as
//                  any of them moves, a pipeline is slow and not stuck.
//   the loop       a thread of its own sees the loop's heartbeat stop, reports, and ends the process.
//
// Loop thread only, but for the watching thread inside.
#pragma once

#include "actors/rank/actor.hpp"
#include "actors/watch/stall_detector.hpp"
#include "runtime/trace.hpp"
#include "runtime/transport.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace ranvier::actors {

class Watchdog {
 public:
  struct Options {
    runtime::Duration timeout = std::chrono::seconds(60);
    std::vector<int> peers;                         ///< whom this rank exchanges messages with; symmetric
    std::function<std::string(int rank)> describe;  ///< "rank 1 (stage 1, row 0)"
    std::function<std::vector<Wait>()> waits;       ///< of all parts, for reports; may be null
    StallDetector::Details details;                 ///< likewise
    /// What this rank waits for beside the transport's messages, as messages from those ranks; may be null.
    std::function<std::vector<runtime::Transport::Pending>()> waited_for;
    std::function<std::uint64_t()> heartbeat;  ///< counts while the loop moves; any thread. Null: no thread
  };

  /// Loop, transport and trace outlive it; the transport's pending receives are dropped with the transport.
  Watchdog(runtime::EventLoop& loop, runtime::Transport& transport, const runtime::Trace& trace, Options options);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// The loop turns no more: somebody else watches what comes now.
  void leave_loop();

  /// What this rank does or waits for, after its name: "has waited for a piece in a collective from rank 1 for 2.0 s".
  [[nodiscard]] std::string waits_for() const;
  /// The same of every part, with the messages under way and the last spans; several lines.
  [[nodiscard]] std::string report() const;

 private:
  enum class State : std::int32_t { idle, computing, waiting };
  /// What a rank has got done, as it said itself; it only grows.
  struct News {
    std::int32_t rank = -1;  ///< below zero: none
    std::uint64_t progress = 0;
  };
  struct Answer {
    State state = State::idle;
    std::int32_t waits_for = -1;
    std::int32_t idle_hops = 0;   ///< Watchdog::idle_hops_ there
    std::array<News, 16> news{};  ///< of itself and of ranks that it heard of, the latest changes
  };
  // Shared with the handlers of receives that the transport may still hold when the watchdog is gone.
  struct Peer {
    std::byte question{};  // where the peer's question arrives
    Answer answer_to_send;
    Answer answer;
    bool asked = false;  // since it became late
    bool answer_pending = false;
    runtime::Duration asked_at{};
    std::map<int, std::uint64_t> news;         // all that it ever passed on, by rank
    runtime::Duration news_at{};               // when there was something new, or it was asked first
    std::optional<runtime::Duration> idle_at;  // since when all its answers say that it has nothing to do
  };

  void tick();
  void listen(int peer);
  void ask(int peer);
  void judge(int peer, const runtime::Transport::Pending& oldest);
  void judge_itself();
  /// Asks peers how far around them all are idle.
  void look_around();
  [[nodiscard]] std::uint64_t progress();
  [[nodiscard]] std::vector<runtime::Transport::Pending> pending() const;
  [[nodiscard]] std::vector<runtime::Transport::Pending> overdue() const;
  /// Of what is pending and has an end; none: nothing.
  [[nodiscard]] std::optional<runtime::Transport::Pending> oldest_pending() const;
  /// "has waited for a piece in a collective from PEER for 2.0 s, …".
  [[nodiscard]] std::string wait_of(const runtime::Transport::Pending& pending, const std::string& peer) const;
  /// "step 7: the gather of h.3; the reduction of h.2"; empty: nothing.
  [[nodiscard]] std::string under_way() const;
  [[nodiscard]] Answer own_state();
  /// Whether there is any.
  bool take_news(Peer& peer);
  void watch_loop();

  runtime::EventLoop* loop_;
  runtime::Transport* transport_;
  const runtime::Trace* trace_;
  Options options_;
  const runtime::Duration period_;  // of ticks
  StallDetector own_;
  std::map<int, std::shared_ptr<Peer>> peers_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  struct PeerStatus {
    std::uint64_t progress = 0;
    runtime::Duration at{};
  };
  std::map<int, PeerStatus> heard_;  // by rank
  // Time is counted in ticks: a process that was stopped and continued has not hung.
  runtime::Duration time_{};
  runtime::Duration last_tick_{};      // by the loop's clock
  runtime::Duration began_waiting_{};  // likewise, the earliest that counts: the last tick with work of its own, or
                                       // after the process was stopped
  runtime::Duration idle_{};           // time of ticks with nothing at work, nothing pending and no progress
  std::uint64_t progress_ = 0;         // at the last tick
  /// All ranks less than so many hops from here, from peer to peer, were idle for the timeout, as far as this rank has
  /// heard. At most the distance to the nearest one that was not: more than there are ranks, and all of them are.
  std::int32_t idle_hops_ = 0;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace ranvier::actors
