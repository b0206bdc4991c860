#include "runtime/liveness/pending_work.hpp"

#include <fmt/format.h>

#include <iterator>
#include <utility>

namespace ranvier::runtime {

std::string to_string(const WorkName& name) {
  std::string text = fmt::format("{}: {}", name.part, name.text);
  if (!name.subject.empty()) text += fmt::format(" {}", name.subject);
  if (name.number >= 0) text += fmt::format(" {}", name.number);
  return text;
}

PendingWork::Item PendingWork::begin(const WorkName& name, const ProgressSource& where, Duration now,
                                     Handler handler) {
  if (free_.empty()) free_.emplace_back();
  work_.splice(work_.end(), free_, free_.begin());
  work_.back() = {{name, &where, now}, std::move(handler)};
  return std::prev(work_.end());
}

Handler PendingWork::end(Item item) {
  free_.splice(free_.end(), work_, item);
  ++ended_;
  return std::exchange(item->handler, nullptr);
}

std::vector<PendingWork::Entry> PendingWork::under_way() const {
  std::vector<Entry> entries;
  for (const Registered& each : work_) entries.push_back(each.entry);
  return entries;
}

}  // namespace ranvier::runtime
