#include "apps/view/history.hpp"

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace ranvier::apps {
namespace {

namespace json = boost::json;

constexpr std::size_t max_evaluations = 2048, max_samples = 8, max_checkpoints = 64, max_warnings = 64,
                      max_runs = 16;
constexpr std::size_t longest_sample = 8192;  // bytes

std::optional<double> if_number(const json::object& record, std::string_view name) {
  const double value = number_of(record, name);
  return std::isfinite(value) ? std::optional(value) : std::nullopt;
}

/// Whole characters of UTF-8.
std::string shortened(std::string text, std::size_t most) {
  if (text.size() <= most) return text;
  while (most > 0 && (static_cast<unsigned char>(text[most]) & 0xc0) == 0x80) --most;
  return text.substr(0, most) + " …";
}

template <typename T>
void keep(std::deque<T>& all, T one, std::size_t most) {
  all.push_back(std::move(one));
  if (all.size() > most) all.pop_front();
}

}  // namespace

std::optional<json::object> parse_record(std::string_view line) {
  boost::system::error_code failed;
  json::value value = json::parse(line, failed);
  if (failed || !value.is_object()) return std::nullopt;
  return std::move(value.get_object());
}

const json::object* object_of(const json::object& record, std::string_view name) {
  const json::value* value = record.if_contains(name);
  return value == nullptr ? nullptr : value->if_object();
}

std::optional<std::int64_t> whole_of(const json::object& record, std::string_view name) {
  const json::value* value = record.if_contains(name);
  if (value == nullptr || !value->is_int64()) return std::nullopt;
  return value->get_int64();
}

double number_of(const json::object& record, std::string_view name) {
  const json::value* value = record.if_contains(name);
  if (value == nullptr || !value->is_number()) return std::numeric_limits<double>::quiet_NaN();
  return value->to_number<double>();
}

std::string text_of(const json::object& record, std::string_view name) {
  const json::value* value = record.if_contains(name);
  return value != nullptr && value->is_string() ? std::string(value->get_string()) : std::string();
}

bool History::take(std::string_view line) {
  const auto parsed = parse_record(line);
  if (!parsed) return false;
  const json::object& record = *parsed;
  if (const auto at = whole_of(record, "step")) {
    if (*at < 0 || *at > (std::int64_t{1} << 53)) return false;
    if (record.contains("grad_norm")) step(*at, record);
    if (record.contains("validation_loss") || record.contains("hellaswag_accuracy")) evaluation(*at, record);
    if (record.contains("sample"))
      keep(samples_, {*at, shortened(text_of(record, "sample"), longest_sample)}, max_samples);
  } else if (const auto kept = whole_of(record, "checkpoint")) {
    Checkpoint checkpoint{.step = *kept,
                          .bytes = if_number(record, "bytes").value_or(0),
                          .seconds = if_number(record, "seconds").value_or(0),
                          .waited_seconds = if_number(record, "waited_seconds").value_or(0),
                          .failure = text_of(record, "failure")};
    totals_.checkpoints += checkpoint.failure.empty() ? 1 : 0;
    totals_.checkpoint_waits += checkpoint.waited_seconds;
    if (!checkpoint.failure.empty()) warn(*kept, "checkpoint failed: " + checkpoint.failure);
    if (const std::string about = text_of(record, "warning"); !about.empty()) warn(*kept, about);
    keep(checkpoints_, std::move(checkpoint), max_checkpoints);
  } else if (const auto bad = whole_of(record, "bad_step")) {
    ++totals_.bad_steps;
    warn(*bad, fmt::format("bad step ({}): {}", text_of(record, "reason"), text_of(record, "action")));
  } else if (const auto damage = whole_of(record, "damage")) {
    warn(*damage, fmt::format("replica mismatch in {} of {}: {}", text_of(record, "state"), text_of(record, "unit"),
                              text_of(record, "action")));
  } else if (const auto split = whole_of(record, "rebalance")) {
    const json::value* better = record.if_contains("better_layers_per_stage");
    if (better != nullptr && better->is_array())
      warn(*split, "--rebalance: faster with --layers-per-stage " + json::serialize(*better));
  } else if (const json::object* run = object_of(record, "run")) {
    if (!run->contains("resumed_step")) {  // another run: its steps are not repeated ones
      auto before = std::move(runs_);
      *this = History(points_);
      runs_ = std::move(before);
    }
    straggling_.clear();  // the resumed run detects stragglers again
    keep(runs_, *run, max_runs);
  } else if (const json::object* said = object_of(record, "prediction")) {
    prediction_ = *said;
  }
  return true;
}

void History::step(std::int64_t step, const json::object& record) {
  const double seconds = number_of(record, "seconds");
  const std::int64_t before = series_.last_step();
  const double forgotten =
      series_.add(step, {number_of(record, "loss"), number_of(record, "grad_norm"), number_of(record, "lr"),
                         number_of(record, "tokens_per_second"), seconds, number_of(record, "mfu"),
                         number_of(record, "measured_mfu")});
  const double tokens = if_number(record, "tokens").value_or(0);
  if (before >= step) {  // steps starting at this one are repeated
    const std::int64_t again = before - step + 1;
    totals_.steps -= std::min(again, totals_.steps);
    totals_.tokens -= std::min(tokens * static_cast<double>(again), totals_.tokens);
    totals_.repeated_seconds += forgotten;
    while (!evaluations_.empty() && evaluations_.back().step >= step) evaluations_.pop_back();
  }
  ++totals_.steps;
  totals_.tokens += tokens;
  if (std::isfinite(seconds)) totals_.seconds += seconds;
  const json::value* skipped = record.if_contains("skipped");
  totals_.skipped += skipped != nullptr && skipped->is_bool() && skipped->get_bool() ? 1 : 0;
  stragglers(step, record);
  last_ = record;
  last_.erase("sample");
  if (const json::object* flags = object_of(record, "configuration")) {
    configuration_ = *flags;
    last_.erase("configuration");
  }
}

void History::stragglers(std::int64_t step, const json::object& record) {
  const json::value* listed = record.if_contains("stragglers");
  std::set<std::int64_t> now;
  std::string slow, fast;
  const auto add = [](std::string& text, const std::string& one) { text += (text.empty() ? "" : "; ") + one; };
  if (listed != nullptr && listed->is_array()) {
    for (const json::value& each : listed->get_array()) {
      if (!each.is_object()) continue;
      const json::object& straggler = each.get_object();
      const auto rank = whole_of(straggler, "rank");
      if (!rank || !now.insert(*rank).second || straggling_.contains(*rank)) continue;
      add(slow,
          fmt::format("rank {} computes {:.2f} times as long as its stage's median row; cost {:.3g} s per step",
                      *rank, number_of(straggler, "times"), number_of(straggler, "seconds_per_step")));
    }
  }
  for (const std::int64_t rank : straggling_)
    if (!now.contains(rank)) add(fast, fmt::format("rank {}", rank));
  if (!slow.empty()) warn(step, "straggler: " + slow);
  if (!fast.empty()) warn(step, "no longer a straggler: " + fast);
  straggling_ = std::move(now);
}

void History::evaluation(std::int64_t step, const json::object& record) {
  while (!evaluations_.empty() && evaluations_.back().step >= step) evaluations_.pop_back();
  evaluations_.push_back({step, if_number(record, "validation_loss"), if_number(record, "validation_accuracy"),
                          if_number(record, "hellaswag_accuracy")});
  if (evaluations_.size() < max_evaluations) return;
  std::size_t kept = 0;  // every second one, and the last
  for (std::size_t i = 1; i < evaluations_.size(); i += 2) evaluations_[kept++] = evaluations_[i];
  evaluations_.resize(kept);
}

void History::warn(std::int64_t step, std::string text) {
  keep(warnings_, {step, shortened(std::move(text), 400)}, max_warnings);
}

}  // namespace ranvier::apps
