#include "runtime/liveness/stall_detector.hpp"

#include <fmt/format.h>

#include <set>
#include <utility>

namespace ranvier::runtime {

std::vector<PendingWork::Entry> StallDetector::oldest_of_sources() const {
  std::vector<PendingWork::Entry> oldest;
  std::set<const ProgressSource*> known;
  for (const PendingWork::Entry& entry : work_->under_way()) {
    if (known.insert(entry.where).second) oldest.push_back(entry);
  }
  return oldest;
}

std::string StallDetector::text_of(const PendingWork::Entry& entry) const {
  const std::string details = details_ ? details_(entry.name.part) : std::string();
  return fmt::format("{}{}{}, {}", to_string(entry.name), details.empty() ? "" : ", ", details,
                     entry.where->place());
}

std::vector<std::string> StallDetector::lines() const {
  std::vector<std::string> lines;
  for (const PendingWork::Entry& entry : work_->under_way())
    lines.push_back(fmt::format("{}, for {:.1f} s", text_of(entry), age(entry)));
  return lines;
}

std::optional<std::string> StallDetector::stuck(Duration period, Duration timeout) {
  std::map<const ProgressSource*, QuietTime> unfinished;
  std::optional<std::string> worst;
  for (const PendingWork::Entry& entry : oldest_of_sources()) {
    QuietTime& source = unfinished[entry.where] = quiet_[entry.where];
    const Duration quiet = source.check(entry.where->done(), period);
    if (quiet < entry.name.patience * timeout || worst) continue;
    worst = fmt::format("{}, unfinished for {:.1f} s, no progress there for {:.1f} s", text_of(entry), age(entry),
                        seconds(quiet));
  }
  quiet_ = std::move(unfinished);
  return worst;
}

std::uint64_t StallDetector::progress() {
  for (const PendingWork::Entry& entry : oldest_of_sources()) {
    const std::uint64_t done = entry.where->done();
    progress_ += done - std::exchange(counted_.try_emplace(entry.where, done).first->second, done);
  }
  return work_->ended() + progress_;
}

std::string StallDetector::describe() const {
  std::string text;
  for (const PendingWork::Entry& entry : oldest_of_sources())
    text += fmt::format("{}{}, for {:.1f} s", text.empty() ? "" : "; ", text_of(entry), age(entry));
  return text;
}

}  // namespace ranvier::runtime
