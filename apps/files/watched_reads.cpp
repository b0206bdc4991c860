#include "apps/files/watched_reads.hpp"

#include <fmt/format.h>

#include <unistd.h>

#include <memory>
#include <thread>
#include <utility>

namespace ranvier::apps {

namespace {

[[noreturn]] void hang() {
  while (true) ::pause();
}

}  // namespace

FaultyReads::FaultyReads(const std::optional<ReadFault>& fault, int rank, runtime::Duration timeout)
    : timeout_(timeout) {
  if (fault && fault->rank == rank) fault_ = fault;
}

void FaultyReads::load(runtime::StartupWatchdog& watch) {
  if (!fault_ || ++pieces_ < fault_->piece) return;
  if (fault_->kind == ReadFault::Kind::load) hang();
  if (fault_->kind != ReadFault::Kind::slow_load) return;
  const runtime::Duration part = timeout_ / 2;
  for (runtime::Duration taken{}; taken < fault_->times * timeout_; taken += part) {
    std::this_thread::sleep_for(part);
    watch.moved();
  }
}

void FaultyReads::data() const {
  if (fault_ && fault_->kind == ReadFault::Kind::data) hang();
}

models::UnitSource watched(models::UnitSource source, std::string where, runtime::StartupWatchdog& watch,
                           FaultyReads faulty) {
  return [source = std::move(source), where = std::move(where), &watch,
          faulty = std::make_shared<FaultyReads>(faulty)](const models::UnitSpec& unit, std::size_t begin,
                                                          std::span<float> out) {
    watch.about(fmt::format("the weights of {} from {}", unit.name, where));
    faulty->load(watch);
    source(unit, begin, out);
    watch.moved();
  };
}

WatchedSource::WatchedSource(actors::StateSource& source, std::string where, runtime::StartupWatchdog& watch,
                             FaultyReads faulty)
    : source_(&source), where_(std::move(where)), watch_(&watch), faulty_(faulty) {}

void WatchedSource::read(const models::UnitSpec& unit, std::string_view array, std::size_t begin,
                         std::span<float> out) {
  watch_->about(fmt::format("the {} of {} from {}", array, unit.name, where_));
  faulty_.load(*watch_);
  source_->read(unit, array, begin, out);
  watch_->moved();
}

}  // namespace ranvier::apps
