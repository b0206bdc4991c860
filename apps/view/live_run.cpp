#include "apps/view/live_run.hpp"

#include "apps/view/page.hpp"

#include <boost/json/array.hpp>
#include <boost/json/serialize.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <limits>

namespace ranvier::apps {
namespace {

namespace json = boost::json;
using namespace std::chrono_literals;

constexpr auto fresh_for = 250ms;    // lifetime of cached texts
constexpr auto wanted_for = 20'000;  // ms after a request for rank data; Prometheus scrapes every 15 s

std::int64_t milliseconds(LiveRun::Clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count();
}

/// Returns whether a process of this machine exists, even as a zombie.
bool is_there(int process) { return process > 0 && (::kill(process, 0) == 0 || errno == EPERM); }

LiveRun::Text shared(std::string text) { return std::make_shared<const std::string>(std::move(text)); }

}  // namespace

void LiveRun::begin(About about) {
  json::array options;
  for (const ResolvedOption& option : about.options)
    if (!option.value.empty()) options.push_back(json::array{option.concern, option.name, option.value});
  const json::object all{{"model", about.model},         {"item", about.item},        {"steps", about.steps},
                         {"stages", about.grid.g_inter}, {"rows", about.grid.g_data}, {"layers", about.stages},
                         {"options", std::move(options)}};
  Text text = shared(json::serialize(all));
  {
    const std::lock_guard lock(mutex_);
    about_ = std::move(about);
    about_text_ = std::move(text);
    ranks_ = ranks_before_ = {};
    processes_.clear();
    over_ = Over::no;
    cause_.clear();
  }
  change("starting", "");
}

void LiveRun::set_phase(std::string name) {
  const Phase now = phase();
  // "stopping" takes precedence over "training".
  if (now.name == "stopping" && name == "training") return;
  change(std::move(name), now.message);
}

void LiveRun::stopping(const std::string& cause, const std::string& expected) {
  {
    const std::lock_guard lock(mutex_);
    cause_ = cause;
  }
  change("stopping", cause + ": " + expected);
}

void LiveRun::end(bool stopped) {
  std::string message;
  {
    const std::lock_guard lock(mutex_);
    const std::int64_t done = history_.series().last_step();
    if (stopped)
      message = (done > 0 ? fmt::format("after step {} of {}", done, about_.steps) : "before its first step") +
                (cause_.empty() ? "" : ", by " + cause_);
  }
  change(stopped ? "stopped" : "done", std::move(message), Over::yes);
}

void LiveRun::fail(std::string message, bool certain) {
  change("failed", std::move(message), certain ? Over::yes : Over::perhaps);
}

void LiveRun::change(std::string name, std::string message, Over over) {
  {
    const std::lock_guard lock(mutex_);
    if (over_ != Over::no && over <= over_) return;
    over_ = over;
    phase_ = {.number = phase_.number + 1, .name = std::move(name), .message = std::move(message)};
    status_.text.reset();
    prometheus_.text.reset();
  }
  changed_();
}

LiveRun::Phase LiveRun::phase() const {
  const std::lock_guard lock(mutex_);
  return phase_;
}

LiveRun::Text LiveRun::phase_after(std::int64_t number) const {
  const Phase now = phase();
  if (now.number == number) return nullptr;
  return shared(
      json::serialize(json::object{{"number", now.number}, {"phase", now.name}, {"message", now.message}}));
}

std::vector<int> LiveRun::lost_ranks() const {
  const std::lock_guard lock(mutex_);
  std::vector<int> lost;
  for (std::size_t rank = 0; rank < processes_.size(); ++rank)
    if (processes_[rank] > 0 && !is_there(processes_[rank])) lost.push_back(static_cast<int>(rank));
  return lost;
}

void LiveRun::take(std::string_view record) {
  const std::lock_guard lock(mutex_);
  history_.take(record);
}

void LiveRun::take(RankSnapshot snapshot) {
  const std::lock_guard lock(mutex_);
  ranks_before_ = std::move(ranks_);
  ranks_ = std::move(snapshot);
  processes_.clear();
  for (const RankSnapshot::Rank& rank : ranks_.ranks)
    processes_.push_back(is_there(rank.summary.process) ? rank.summary.process : 0);
  ranks_text_.text.reset();
}

bool LiveRun::ranks_wanted(Clock::time_point now) const { return milliseconds(now) - wanted_ms_ < wanted_for; }

LiveRun::Text LiveRun::lately(Made& made, std::string (LiveRun::*make)() const) const {
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  if (!made.text || now - made.at > fresh_for) made = {shared((this->*make)()), now};
  return made.text;
}

LiveRun::Text LiveRun::about() const {
  const std::lock_guard lock(mutex_);
  return about_text_;
}

LiveRun::Text LiveRun::status() const { return lately(status_, &LiveRun::make_status); }

LiveRun::Text LiveRun::ranks() const {
  wanted_ms_ = milliseconds(Clock::now());
  return lately(ranks_text_, &LiveRun::make_ranks);
}

LiveRun::Text LiveRun::prometheus() const {
  wanted_ms_ = milliseconds(Clock::now());
  return lately(prometheus_, &LiveRun::make_prometheus);
}

std::string LiveRun::make_status() const {
  json::object status = status_json(history_);
  status["phase"] = phase_.name;
  status["phase_number"] = phase_.number;
  status["message"] = phase_.message;
  status["steps"] = about_.steps;
  status["running_seconds"] = std::chrono::duration<double>(Clock::now() - began_).count();
  const std::int64_t left = about_.steps - history_.series().last_step();
  const double step_seconds = number_of(status, "step_seconds");
  status["eta_seconds"] = json_number(step_seconds * static_cast<double>(left));
  return json::serialize(status);
}

LiveRun::Text LiveRun::series(std::int64_t first, std::int64_t last, std::size_t points) const {
  std::vector<StepBin> all;
  {
    const std::lock_guard lock(mutex_);
    if (last <= 0) last = std::numeric_limits<std::int64_t>::max();
    all = history_.series().between(first, last, std::clamp<std::size_t>(points, 1, max_points));
  }
  return shared(series_json(all));
}

std::string LiveRun::make_ranks() const { return ranks_json(ranks_, ranks_before_); }

}  // namespace ranvier::apps
