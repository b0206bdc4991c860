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

WatchedReads::WatchedReads(runtime::ThreadWatchdog& watch, int rank, runtime::Duration timeout)
    : watch_(&watch), timeout_(timeout), fault_(read_fault_from_environment()) {
  if (fault_ && fault_->rank != rank) fault_.reset();
}

void WatchedReads::data(const std::filesystem::path& file) const {
  watch_->about(file.string());
  if (fault_ && fault_->kind == ReadFault::Kind::data) hang();
}

void WatchedReads::load(std::string what, const std::function<void()>& read) {
  watch_->about(std::move(what));
  if (fault_ && ++pieces_ >= fault_->piece) {
    if (fault_->kind == ReadFault::Kind::load) hang();
    const runtime::Duration part = timeout_ / 2;
    for (runtime::Duration taken{}; fault_->kind == ReadFault::Kind::slow_load && taken < fault_->times * timeout_;
         taken += part) {
      std::this_thread::sleep_for(part);
      watch_->moved();
    }
  }
  read();
  watch_->moved();
}

models::UnitSource watched(models::UnitSource source, std::string where, WatchedReads reads) {
  return [source = std::move(source), where = std::move(where), reads = std::make_shared<WatchedReads>(reads)](
             const models::UnitSpec& unit, std::size_t begin, std::span<float> out) {
    reads->load(fmt::format("the weights of {} from {}", unit.name, where), [&] { source(unit, begin, out); });
  };
}

WatchedSource::WatchedSource(actors::StateSource& source, std::string where, WatchedReads reads)
    : source_(&source), where_(std::move(where)), reads_(reads) {}

void WatchedSource::read(const models::UnitSpec& unit, std::string_view array, std::size_t begin,
                         std::span<float> out) {
  reads_.load(fmt::format("the {} of {} from {}", array, unit.name, where_),
              [&] { source_->read(unit, array, begin, out); });
}

}  // namespace ranvier::apps
