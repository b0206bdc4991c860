// Nobody hangs for ever. Three watches, one for each way to hang:
//
//   the peers: a message that is waited for longer than the timeout makes this rank ask its peer whether it
//              lives. A peer that does not answer, or answers that it has nothing to do, is named in an Error.
//              One that waits for somebody else is left to be judged by its own neighbours.
//   itself:    a rank without peers that has neither work nor messages for longer than the timeout will never have.
//   the loop:  a thread of its own sees the loop's heartbeat stop, reports, and ends the process.
//
// Loop thread only, but for the watching thread inside.
#pragma once

#include "runtime/trace.hpp"
#include "runtime/transport.hpp"

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
    std::vector<int> peers;                       ///< whom this rank exchanges messages with; symmetric
    std::function<bool()> computing;              ///< whether the device or a file is at work for this rank
    std::function<std::uint64_t()> progress;      ///< counts what this rank got done
    std::function<std::string(int rank)> describe;  ///< "rank 1 (stage 1, row 0)"
    std::function<std::string()> under_way;         ///< what collectives this rank is in, for the report; may be null
    /// What this rank waits for beside the transport's messages, as messages from those ranks; may be null.
    std::function<std::vector<runtime::Transport::Pending>()> waited_for;
    std::function<std::uint64_t()> heartbeat;     ///< counts while the loop moves; any thread. Null: no thread
  };

  /// Loop, transport and trace outlive it; the transport's pending receives are dropped with the transport.
  Watchdog(runtime::EventLoop& loop, runtime::Transport& transport, const runtime::Trace& trace, Options options);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// What this rank does or waits for, after its name: "has waited for a piece in a collective from rank 1 for 2.0 s".
  [[nodiscard]] std::string waits_for() const;

 private:
  enum class State : std::int32_t { idle, computing, waiting };
  struct Answer {
    State state = State::idle;
    std::int32_t waits_for = -1;
    std::uint64_t progress = 0;
  };
  // Shared with the handlers of receives that the transport may still hold when the watchdog is gone.
  struct Peer {
    std::byte question{};           // where the peer's question arrives
    Answer answer_to_send;
    Answer answer;
    bool asked = false;
    runtime::Duration asked_at{};
    std::uint64_t progress = 0;        // as last answered
    runtime::Duration progress_at{};   // when it last changed
    bool answer_pending = false;
  };

  void tick();
  void listen(int peer);
  void ask(int peer);
  void judge(int peer, const runtime::Transport::Pending& oldest);
  [[nodiscard]] std::vector<runtime::Transport::Pending> pending() const;
  [[nodiscard]] std::vector<runtime::Transport::Pending> overdue() const;
  /// Of what is pending and has an end; none: nothing.
  [[nodiscard]] std::optional<runtime::Transport::Pending> oldest_pending() const;
  /// "has waited for a piece in a collective from PEER for 2.0 s, …".
  [[nodiscard]] std::string wait_of(const runtime::Transport::Pending& pending, const std::string& peer) const;
  [[nodiscard]] Answer own_state() const;
  void judge_itself(runtime::Duration period);
  void watch_loop();

  runtime::EventLoop* loop_;
  runtime::Transport* transport_;
  const runtime::Trace* trace_;
  Options options_;
  std::map<int, std::shared_ptr<Peer>> peers_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  runtime::Duration computed_at_{};  // the last tick that saw the device at work
  runtime::Duration idle_{};         // time of ticks that saw nothing at work, nothing pending and no progress
  std::uint64_t progress_ = 0;       // at the last tick
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace ranvier::actors
