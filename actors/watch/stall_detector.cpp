#include "actors/watch/stall_detector.hpp"

#include <fmt/format.h>

#include <set>
#include <utility>

namespace ranvier::actors {

using runtime::Duration;
using runtime::PendingWork;

namespace {

double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

/// The oldest entry per progress source.
std::vector<PendingWork::Entry> oldest_of_places(const runtime::EventLoop& loop) {
  std::vector<PendingWork::Entry> oldest;
  std::set<const runtime::ProgressSource*> known;
  for (const PendingWork::Entry& entry : loop.pending_work().under_way()) {
    if (known.insert(entry.where).second) oldest.push_back(entry);
  }
  return oldest;
}

}  // namespace

std::string StallDetector::text_of(const PendingWork::Entry& entry) const {
  const std::string details = details_ ? details_(entry.name.part) : std::string();
  return fmt::format("{}{}{}, {}", to_string(entry.name), details.empty() ? "" : ", ", details,
                     entry.where->place());
}

std::vector<std::string> StallDetector::lines() const {
  std::vector<std::string> lines;
  for (const PendingWork::Entry& entry : loop_->pending_work().under_way())
    lines.push_back(fmt::format("{}, for {:.1f} s", text_of(entry), seconds(loop_->now() - entry.since)));
  return lines;
}

std::optional<std::string> StallDetector::stuck(Duration period, Duration timeout) {
  std::map<const runtime::ProgressSource*, Seen> places;
  std::optional<std::string> worst;
  for (const PendingWork::Entry& entry : oldest_of_places(*loop_)) {
    Seen seen{entry.where->done(), {}};
    if (const auto before = places_.find(entry.where); before != places_.end() && before->second.done == seen.done)
      seen.quiet = before->second.quiet + period;
    places.emplace(entry.where, seen);
    if (seen.quiet < entry.name.patience * timeout || worst) continue;
    worst = fmt::format("{}, unfinished for {:.1f} s, no progress there for {:.1f} s", text_of(entry),
                        seconds(loop_->now() - entry.since), seconds(seen.quiet));
  }
  places_ = std::move(places);
  return worst;
}

std::uint64_t StallDetector::progress() {
  for (const PendingWork::Entry& entry : oldest_of_places(*loop_)) {
    const std::uint64_t done = entry.where->done();
    progress_ += done - std::exchange(counted_.try_emplace(entry.where, done).first->second, done);
  }
  return loop_->pending_work().ended() + progress_;
}

std::string StallDetector::describe() const {
  std::string text;
  for (const PendingWork::Entry& entry : oldest_of_places(*loop_)) {
    text += fmt::format("{}{}, for {:.1f} s", text.empty() ? "" : "; ", text_of(entry),
                        seconds(loop_->now() - entry.since));
  }
  return text;
}

}  // namespace ranvier::actors
