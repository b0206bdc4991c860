// Gathers summaries of all ranks on rank 0 for the live page, at most once per second and only while a page is open.
// A rank replies in a handler of its loop with a few hundred to a few thousand bytes. Training never waits for a reply,
// and its schedule does not change. Loop thread only.
#pragma once

#include "apps/view/rank_summary.hpp"
#include "runtime/loop/event_loop.hpp"
#include "runtime/transport/transport.hpp"

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
    /// Fills the summary except times and spans.
    std::function<void(RankSummary&)> describe;
    // Rank 0 only:
    std::function<bool()> wanted;
    std::function<void(RankSnapshot)> heard;
    std::function<void(std::string message)> failed;  ///< error of another rank
    runtime::Duration period = std::chrono::seconds(1);
  };

  /// Created by all ranks after their traces were restarted together. All arguments outlive it.
  RankWatch(runtime::EventLoop& loop, runtime::Transport& transport, const runtime::Trace& trace, Options options);
  ~RankWatch();
  RankWatch(const RankWatch&) = delete;
  RankWatch& operator=(const RankWatch&) = delete;

  /// Reports a finished step. Rank 0.
  void step_done(std::int64_t step);

  /// Sends the error of a failing rank to rank 0 before the job ends. Needs no RankWatch; does not block.
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
  // Checked by handlers that the transport may still hold after destruction.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace ranvier::apps
