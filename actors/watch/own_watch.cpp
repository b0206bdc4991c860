#include "actors/watch/own_watch.hpp"

#include <fmt/format.h>

#include <set>
#include <utility>

namespace ranvier::actors {

using runtime::Duration;
using runtime::OwnWork;

namespace {

double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

/// The oldest of each place.
std::vector<OwnWork::Entry> oldest_of_places(const runtime::EventLoop& loop) {
  std::vector<OwnWork::Entry> oldest;
  std::set<const runtime::Workplace*> known;
  for (const OwnWork::Entry& entry : loop.own_work().under_way()) {
    if (known.insert(entry.where).second) oldest.push_back(entry);
  }
  return oldest;
}

}  // namespace

std::string OwnWatch::text_of(const OwnWork::Entry& entry) const {
  const std::string details = details_ ? details_(entry.name.part) : std::string();
  return fmt::format("{}{}{}, {}", to_string(entry.name), details.empty() ? "" : ", ", details,
                     entry.where->place());
}

std::vector<std::string> OwnWatch::lines() const {
  std::vector<std::string> lines;
  for (const OwnWork::Entry& entry : loop_->own_work().under_way())
    lines.push_back(fmt::format("{}, for {:.1f} s", text_of(entry), seconds(loop_->now() - entry.since)));
  return lines;
}

std::optional<std::string> OwnWatch::stuck(Duration period, Duration timeout) {
  std::map<const runtime::Workplace*, Seen> places;
  std::optional<std::string> worst;
  for (const OwnWork::Entry& entry : oldest_of_places(*loop_)) {
    Seen seen{entry.where->done(), {}};
    if (const auto before = places_.find(entry.where); before != places_.end() && before->second.done == seen.done)
      seen.quiet = before->second.quiet + period;
    places.emplace(entry.where, seen);
    if (seen.quiet < entry.name.patience * timeout || worst) continue;
    worst = fmt::format("{}, has not ended for {:.1f} s, and nothing has moved there for {:.1f} s", text_of(entry),
                        seconds(loop_->now() - entry.since), seconds(seen.quiet));
  }
  places_ = std::move(places);
  return worst;
}

std::uint64_t OwnWatch::progress() {
  for (const OwnWork::Entry& entry : oldest_of_places(*loop_)) {
    const std::uint64_t done = entry.where->done();
    progress_ += done - std::exchange(counted_.try_emplace(entry.where, done).first->second, done);
  }
  return loop_->own_work().ended() + progress_;
}

std::string OwnWatch::describe() const {
  std::string text;
  for (const OwnWork::Entry& entry : oldest_of_places(*loop_)) {
    text += fmt::format("{}{}, for {:.1f} s", text.empty() ? "" : "; ", text_of(entry),
                        seconds(loop_->now() - entry.since));
  }
  return text;
}

}  // namespace ranvier::actors
