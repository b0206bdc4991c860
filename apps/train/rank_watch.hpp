// What all ranks do, brought to rank 0 for those who watch the run: asked for once a second at most, and only while
// somebody wants to know. Each rank answers between two handlers of its loop with a few hundred bytes to a few
// thousand; nobody waits for an answer, and no work of the training begins, ends or changes place. Loop thread only.
#pragma once

#include "apps/view/rank_summary.hpp"
#include "runtime/event_loop.hpp"
#include "runtime/transport.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace ranvier::apps {

class RankWatch {
 public:
  struct Options {
    /// Fills what is no time and no span.
    std::function<void(RankSummary&)> describe;
    // On rank 0:
    std::function<bool()> wanted;
    std::function<void(RankSnapshot)> heard;
    std::function<void(std::string message)> failed;  ///< another rank, which ends the job next
    runtime::Duration period = std::chrono::seconds(1);
  };

  /// All ranks make one, once their traces have begun together. All outlive it.
  RankWatch(runtime::EventLoop& loop, runtime::Transport& transport, const runtime::Trace& trace, Options options);
  ~RankWatch();
  RankWatch(const RankWatch&) = delete;
  RankWatch& operator=(const RankWatch&) = delete;

  /// On rank 0: that step is done now.
  void step_done(std::int64_t step);

  /// On a rank that fails, which may have no watch any more and is about to end the job: tells rank 0 why. Waits for
  /// nobody.
  static void tell_failure(runtime::Transport& transport, std::string_view message);

 private:
  struct Question {
    std::int64_t from_ns = 0, to_ns = 0;
  };
  struct Gathering;
  struct Answering;

  void tick();
  void ask();
  void listen();
  void listen_for_failure(int rank);
  [[nodiscard]] std::vector<std::byte> answer(const Question& question) const;

  runtime::EventLoop* loop_;
  runtime::Transport* transport_;
  const runtime::Trace* trace_;
  Options options_;
  std::size_t answer_bytes_;
  std::int64_t step_ = 0;
  Question last_step_;
  bool asking_ = false;
  // Handlers that the transport may still hold when the watch is gone look here first.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace ranvier::apps
