#include "apps/view/live_run.hpp"

#include <boost/json/array.hpp>
#include <boost/json/serialize.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstring>
#include <iterator>
#include <limits>

namespace ranvier::apps {
namespace {

namespace json = boost::json;
using namespace std::chrono_literals;

constexpr auto fresh_for = 250ms;    // lifetime of cached texts
constexpr auto wanted_for = 20'000;  // ms after a request for rank data; Prometheus scrapes every 15 s
constexpr std::size_t max_points = 1500, max_listed_evaluations = 400;

// JSON has no infinity and no NaN.
json::value number(double value) { return std::isfinite(value) ? json::value(value) : json::value(nullptr); }

json::value number(const std::optional<double>& value) { return value ? number(*value) : json::value(nullptr); }

std::int64_t milliseconds(LiveRun::Clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count();
}

/// Returns whether a process of this machine exists, even as a zombie.
bool is_there(int process) { return process > 0 && (::kill(process, 0) == 0 || errno == EPERM); }

LiveRun::Text shared(std::string text) { return std::make_shared<const std::string>(std::move(text)); }

/// Six digits are enough for a plot and keep the text short.
void append_number(std::string& text, double value) {
  if (std::isfinite(value)) {
    fmt::format_to(std::back_inserter(text), "{:.6g}", value);
  } else {
    text += "null";
  }
}

}  // namespace

void LiveRun::begin(About about) {
  json::array stages, options;
  for (const Stage& stage : about.stages) {
    json::object planned;
    for (const auto& [space, kinds] : stage.planned_bytes) {
      json::object of_space;
      for (const auto& [kind, bytes] : kinds) of_space[kind] = bytes;
      planned[space] = std::move(of_space);
    }
    stages.push_back(json::object{{"layers", stage.layers}, {"planned_bytes", std::move(planned)}});
  }
  for (const ResolvedOption& option : about.options)
    if (!option.value.empty()) options.push_back(json::array{option.concern, option.name, option.value});
  const json::object all{{"model", about.model},         {"item", about.item},        {"steps", about.steps},
                         {"stages", about.grid.g_inter}, {"rows", about.grid.g_data}, {"layers", std::move(stages)},
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
  const History::Totals& totals = history_.totals();
  json::array evaluations, samples, checkpoints, warnings;
  const auto& all = history_.evaluations();
  const std::size_t every = all.size() / max_listed_evaluations + 1;
  for (std::size_t i = (all.size() + every - 1) % every; i < all.size(); i += every)  // the last one among them
    evaluations.push_back(
        json::array{all[i].step, number(all[i].loss), number(all[i].accuracy), number(all[i].hellaswag)});
  for (const auto& each : history_.samples()) samples.push_back(json::array{each.step, each.text});
  for (const auto& each : history_.checkpoints())
    checkpoints.push_back(json::object{{"step", each.step},
                                       {"bytes", each.bytes},
                                       {"seconds", each.seconds},
                                       {"waited_seconds", each.waited_seconds},
                                       {"failure", each.failure}});
  for (const auto& each : history_.warnings()) warnings.push_back(json::array{each.step, each.text});
  // The ETA follows from the latest step times.
  const std::int64_t done = history_.series().last_step();
  double step_seconds = std::numeric_limits<double>::quiet_NaN();
  if (const auto recent = history_.series().between(done - 15, done, 1); !recent.empty())
    step_seconds = recent[0][Metric::seconds].mean;
  return json::serialize(
      json::object{{"phase", phase_.name},
                   {"phase_number", phase_.number},
                   {"message", phase_.message},
                   {"step", done},
                   {"steps", about_.steps},
                   {"running_seconds", std::chrono::duration<double>(Clock::now() - began_).count()},
                   {"step_seconds", number(step_seconds)},
                   {"eta_seconds", number(step_seconds * static_cast<double>(about_.steps - done))},
                   {"tokens", totals.tokens},
                   {"bad_steps", totals.bad_steps},
                   {"skipped", totals.skipped},
                   {"repeated_seconds", totals.repeated_seconds},
                   {"checkpoint_waits", totals.checkpoint_waits},
                   {"last", history_.last()},
                   {"evaluations", std::move(evaluations)},
                   {"samples", std::move(samples)},
                   {"checkpoints", std::move(checkpoints)},
                   {"warnings", std::move(warnings)}});
}

LiveRun::Text LiveRun::series(std::int64_t first, std::int64_t last, std::size_t points) const {
  std::vector<StepBin> all;
  {
    const std::lock_guard lock(mutex_);
    if (last <= 0) last = std::numeric_limits<std::int64_t>::max();
    all = history_.series().between(first, last, std::clamp<std::size_t>(points, 1, max_points));
  }
  std::string text = "{\"step\":[";
  for (std::size_t i = 0; i < all.size(); ++i)
    fmt::format_to(std::back_inserter(text), "{}{}", i ? "," : "", all[i].last);
  text += ']';
  for (std::size_t f = 0; f < figure_count; ++f) {
    const auto list = [&](std::string_view suffix, const auto& of) {
      fmt::format_to(std::back_inserter(text), ",\"{}{}\":[", figure_names[f], suffix);
      for (std::size_t i = 0; i < all.size(); ++i) {
        if (i > 0) text += ',';
        const BinnedValue& value = all[i].values[f];
        append_number(text, value.count > 0 ? of(value) : std::numeric_limits<double>::quiet_NaN());
      }
      text += ']';
    };
    list("", [](const BinnedValue& value) { return value.mean; });
    const auto metric = static_cast<Metric>(f);
    if (metric == Metric::learning_rate || metric == Metric::mfu || metric == Metric::measured_mfu) continue;
    list("_least", [](const BinnedValue& value) { return static_cast<double>(value.least); });
    list("_most", [](const BinnedValue& value) { return static_cast<double>(value.most); });
  }
  return shared(text + '}');
}

std::string LiveRun::make_ranks() const {
  std::string text = fmt::format("{{\"step\":{},\"step_ms\":", ranks_.step);
  append_number(text, ranks_.step_ms);
  text += ",\"seconds\":";
  append_number(text, ranks_.at_seconds);
  text += ",\"since_seconds\":";
  append_number(text,
                ranks_before_.ranks.empty() ? std::numeric_limits<double>::quiet_NaN() : ranks_before_.at_seconds);
  text += ",\"kinds\":[";
  for (int k = 0; k < runtime::span_kinds; ++k)
    fmt::format_to(std::back_inserter(text), "{}\"{}\"", k ? "," : "",
                   runtime::to_string(static_cast<runtime::SpanKind>(k)));
  text += "],\"ranks\":[";
  for (std::size_t r = 0; r < ranks_.ranks.size(); ++r) {
    const auto& [rank, spans] = ranks_.ranks[r];
    const std::string waits(rank.waits.data(), ::strnlen(rank.waits.data(), rank.waits.size()));
    fmt::format_to(std::back_inserter(text),
                   R"({}{{"step":{},"waits":{},"device_bytes":{},"resident_bytes":{},"bytes_intra":{:.0f},)"
                   R"("bytes_inter":{:.0f},"seconds":[)",
                   r ? "," : "", rank.step, json::serialize(json::string_view(waits)), rank.device_bytes,
                   rank.resident_bytes, rank.bytes_intra, rank.bytes_inter);
    for (std::size_t k = 0; k < rank.seconds.size(); ++k) {
      if (k > 0) text += ',';
      append_number(text, rank.seconds[k]);
    }
    text += ']';
    if (r < ranks_before_.ranks.size()) {
      const RankSummary& before = ranks_before_.ranks[r].summary;
      fmt::format_to(std::back_inserter(text), R"(,"intra_since":{:.0f},"inter_since":{:.0f})",
                     rank.bytes_intra - before.bytes_intra, rank.bytes_inter - before.bytes_inter);
    }
    text += ",\"spans\":[";
    for (std::size_t s = 0; s < spans.size(); ++s)
      fmt::format_to(std::back_inserter(text), "{}[{},{},{},{:.5g},{:.4g}]", s ? "," : "", spans[s].kind,
                     spans[s].lane, spans[s].index, spans[s].begin_ms, spans[s].length_ms);
    text += "]}";
  }
  return text + "]}";
}

}  // namespace ranvier::apps
