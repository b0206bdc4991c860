// Ends the job with an error if a rank hangs. Loop thread only; ThreadWatchdog watches the loop itself. Two checks:
//
//   local work   a stream or file of this rank has work but made no progress for the timeout (StallDetector), or all
//                ranks are idle
//   peers        a peer of an overdue message does not reply, is idle, or waits without progress. Replies carry the
//                progress of all known ranks, so a slow pipeline is not mistaken for a hang
#pragma once

#include "actors/base/actor.hpp"
#include "runtime/liveness/stall_detector.hpp"
#include "runtime/loop/event_loop.hpp"
#include "runtime/trace/trace.hpp"
#include "runtime/transport/transport.hpp"

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ranvier::actors {

class Watchdog {
 public:
  struct Options {
    runtime::Duration timeout = std::chrono::seconds(60);
    std::vector<int> peers;                         ///< ranks that exchange messages with this one; symmetric
    std::function<std::string(int rank)> describe;  ///< "rank 1 (stage 1, row 0)"
    std::function<std::vector<Wait>()> waits;       ///< pending waits of all actors, for reports; may be null
    runtime::StallDetector::Details details;        ///< progress of actors' work, for reports; may be null
    /// Waits that are not messages of the transport (NCCL), in the form of messages; may be null.
    std::function<std::vector<runtime::Transport::Pending>()> waited_for;
    /// Called at each check that finds local work. If set, only local work is judged: for a phase without messages, the
    /// rest of which a ThreadWatchdog watches.
    std::function<void()> at_work = nullptr;
  };

  /// Loop, transport and trace must outlive this object. Its pending receives end with the transport.
  Watchdog(runtime::EventLoop& loop, runtime::Transport& transport, const runtime::Trace& trace, Options options);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// This rank's work or oldest wait, as a predicate: "has waited for a collective chunk from rank 1 for 2.0 s".
  [[nodiscard]] std::string waits_for() const;
  /// Work and waits of all actors, pending messages and the last spans; several lines.
  [[nodiscard]] std::string report() const;

 private:
  enum class State : std::int32_t { idle, computing, waiting };
  /// A rank's progress counter.
  struct News {
    std::int32_t rank = -1;  ///< negative: none
    std::uint64_t progress = 0;
  };
  struct Answer {
    State state = State::idle;
    std::int32_t waits_for = -1;
    std::int32_t idle_hops = 0;   ///< Watchdog::idle_hops_ of the sender
    std::array<News, 16> news{};  ///< progress of the sender and the latest changes of other ranks
  };
  // Shared with handlers of receives, which may outlive the watchdog in the transport.
  struct Peer {
    std::byte question{};  // receive buffer of the peer's request
    Answer answer_to_send;
    Answer answer;
    bool answer_pending = false;
    std::optional<runtime::Duration> asked_at;  // none: not since its message became overdue
    std::map<int, std::uint64_t> news;          // progress that it reported, by rank
    runtime::Duration news_at{};                // time of the last progress or of the first request
    std::optional<runtime::Duration> idle_at;   // start of the current sequence of idle replies
  };

  void tick();
  void listen(int peer);
  void ask(int peer);
  void judge(int peer, const runtime::Transport::Pending& oldest);
  void judge_itself();
  /// Polls peers for the distance up to which all ranks are idle.
  void look_around();
  [[nodiscard]] std::uint64_t progress();
  /// Pending messages, without receives that are always posted.
  [[nodiscard]] std::vector<runtime::Transport::Pending> pending() const;
  /// Oldest pending message of each peer that has waited for the timeout.
  [[nodiscard]] std::map<int, runtime::Transport::Pending> overdue() const;
  /// Oldest pending message; none: no message is pending.
  [[nodiscard]] std::optional<runtime::Transport::Pending> oldest_pending() const;
  /// "has waited for a collective chunk from PEER for 2.0 s, …".
  [[nodiscard]] std::string wait_of(const runtime::Transport::Pending& pending, const std::string& peer) const;
  /// "step 7: the gather of h.3; the reduction of h.2"; empty: no waits.
  [[nodiscard]] std::string under_way() const;
  [[nodiscard]] Answer own_state();
  /// Stores the reply's progress counters; returns whether any has grown.
  bool take_news(Peer& peer);

  runtime::EventLoop* loop_;
  runtime::Transport* transport_;
  const runtime::Trace* trace_;
  Options options_;
  const runtime::Duration period_;  // between ticks
  runtime::StallDetector own_;
  std::map<int, std::shared_ptr<Peer>> peers_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  struct PeerStatus {
    std::uint64_t progress = 0;
    runtime::Duration at{};
  };
  std::map<int, PeerStatus> heard_;  // by rank
  // Counted in ticks: a process that was stopped and continued has not hung.
  runtime::Duration time_{};
  runtime::Duration last_tick_{};      // loop time
  runtime::Duration began_waiting_{};  // loop time; waits count from here: last tick with work, or end of a stop
  runtime::QuietTime idle_;            // without local work, pending messages and progress
  /// Number of hops between peers within which all ranks have been idle for the timeout. It is at most the distance to
  /// the nearest busy rank, so a value above the number of ranks means that all are idle.
  std::int32_t idle_hops_ = 0;
};

}  // namespace ranvier::actors
