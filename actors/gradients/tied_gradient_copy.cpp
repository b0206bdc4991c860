#include "actors/gradients/tied_gradient_copy.hpp"

#include "runtime/base/error.hpp"

#include <algorithm>
#include <utility>

namespace ranvier::actors {

TiedGradientCopy::TiedGradientCopy(const RankContext& context, Options options)
    : loop_(&context.loop), transport_(&context.transport), options_(std::move(options)) {}

void TiedGradientCopy::run(const std::vector<runtime::Bytes>& runs, runtime::Handler done) {
  const auto bucket = std::make_shared<Bucket>(Bucket{0, std::move(done)});
  std::size_t room = 0;
  for (runtime::Bytes run : runs) {
    while (!run.empty()) {
      if (room == 0) {
        waiting_.push_back({{}, bucket});
        ++bucket->missing;
        room = options_.message_bytes;
      }
      const runtime::Bytes range = run.first(std::min(room, run.size()));
      waiting_.back().ranges.push_back(range);
      run = run.subspan(range.size());
      room -= range.size();
    }
  }
  expect(bucket->missing > 0, "a tied unit's bucket without elements is copied");
  if (under_way_ == 0) since_ = loop_->now();
  while (under_way_ < options_.depth && !waiting_.empty()) begin_next();
}

void TiedGradientCopy::begin_next() {
  const Message message = std::move(waiting_.front());
  waiting_.pop_front();
  ++under_way_;
  auto through = [this, bucket = message.bucket] {
    --under_way_;
    if (!waiting_.empty()) begin_next();
    if (--bucket->missing == 0) bucket->done();
  };
  if (!options_.sends)
    return transport_->receive(options_.partner, options_.tag, message.ranges, std::move(through));
  const std::vector<runtime::ConstBytes> ranges(message.ranges.begin(), message.ranges.end());
  transport_->send(options_.partner, options_.tag, ranges, std::move(through));
}

std::vector<Wait> TiedGradientCopy::waits() const {
  if (under_way_ == 0) return {};
  return {{fmt::format("the reduced gradients of {}, {} the other stage", options_.unit,
                       options_.sends ? "which go to" : "which come from"),
           options_.partner, since_}};
}

}  // namespace ranvier::actors
