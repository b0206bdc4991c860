// --serve on rank 0: the run as others see it, and the server that shows it, from the start of the program to its end.
#pragma once

#include "apps/train/job.hpp"
#include "apps/train/options/train_options.hpp"
#include "apps/train/plan/job_plan.hpp"
#include "apps/view/live_run.hpp"
#include "apps/view/page_server.hpp"

#include <chrono>
#include <functional>
#include <string>

namespace ranvier::apps {

class LivePage {
 public:
  /// `serve`: as the flag has it. Throws Error as PageServer does.
  explicit LivePage(const std::string& serve);

  // Tell how the run ended, and return once open pages have heard it and asked for what they show last. Where
  // nobody has looked lately they return at once.
  void end(bool stopped);
  void fail(const std::string& message);

  [[nodiscard]] LiveRun& run() noexcept { return run_; }
  /// What a browser opens, token and all.
  [[nodiscard]] const std::string& url() const noexcept { return url_; }

 private:
  void tell(const std::function<void()>& what, std::chrono::milliseconds patience);

  LiveRun run_{[this] { server_.wake(); }};
  std::string token_;
  PageServer server_;
  std::string url_;
};

/// What a page tells of a run beside what happens in it.
[[nodiscard]] LiveRun::About about_run(const TrainOptions& options, const Job& job, const JobPlan& plan);

}  // namespace ranvier::apps
