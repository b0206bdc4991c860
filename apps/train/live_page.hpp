// Live page of --serve on rank 0: the run's state and the server that shows it, from program start to end.
#pragma once

#include "apps/job/job.hpp"
#include "apps/memory/job_plan.hpp"
#include "apps/options/train_options.hpp"
#include "apps/view/live_run.hpp"
#include "apps/view/page_server.hpp"
#include "apps/view/serve_address.hpp"

#include <chrono>
#include <functional>
#include <string>

namespace ranvier::apps {

class LivePage {
 public:
  /// `serve`: valid value of --serve. Throws Error like PageServer.
  explicit LivePage(const std::string& serve);

  // Publish how the run ended; block until open pages have loaded it, at most a few seconds. Return at once if no page
  // was open recently.
  void end(bool stopped);
  void fail(const std::string& message);

  [[nodiscard]] LiveRun& run() noexcept { return run_; }
  /// Address for a browser, with its token.
  [[nodiscard]] const std::string& url() const noexcept { return url_; }

 private:
  LivePage(const std::string& serve, const ServeAddress& where);
  void tell(const std::function<void()>& what, std::chrono::milliseconds patience);

  LiveRun run_{[this] { server_.wake(); }};
  std::string token_;
  PageServer server_;
  std::string url_;
};

/// Static description of a run: model, grid, stages, flags.
[[nodiscard]] LiveRun::About about_run(const TrainOptions& options, const Job& job, const JobPlan& plan);

}  // namespace ranvier::apps
