#include "offload/tiers.hpp"

#include "offload/block_checksums.hpp"
#include "offload/file_tier.hpp"
#include "offload/stripes.hpp"
#include "runtime/base/arithmetic.hpp"
#include "runtime/base/error.hpp"
#include "runtime/base/names.hpp"
#include "runtime/kernels/elementwise.hpp"
#include "runtime/liveness/time_limits.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace ranvier::offload {

namespace {

bool on_block(const void* address) { return reinterpret_cast<std::uintptr_t>(address) % Tier::block_bytes == 0; }

/// Number of ranges from `first` on with equal length and distance, and that distance: one strided copy.
std::pair<std::size_t, std::size_t> alike(const Tiers::StridedLayout& runs, std::size_t first) {
  const std::size_t bytes = runs[first].size();
  std::size_t count = 1, stride = bytes;
  for (; first + count < runs.size() && runs[first + count].size() == bytes; ++count) {
    const std::byte* const before = runs[first + count - 1].data();
    if (runs[first + count].data() < before + bytes) break;
    const auto distance = static_cast<std::size_t>(runs[first + count].data() - before);
    if (count > 1 && distance != stride) break;
    stride = distance;
  }
  return {count, count > 1 ? stride : bytes};
}

std::size_t bytes_of(const Tiers::StridedLayout& runs) {
  std::size_t bytes = 0;
  for (const auto& run : runs) bytes += run.size();
  return bytes;
}

}  // namespace

const char* to_string(TierKind kind) noexcept {
  return runtime::enum_name<TierKind::nvme>(kind, {"device", "host", "nvme"});
}

TierRegion TierPlan::reserve(TierKind kind, runtime::MemoryKind memory_kind, const std::string& name,
                             std::size_t bytes, runtime::MemoryPlan& plan) {
  expect(kind != TierKind::device, "{} is reserved in a tier, but stays on the device", name);
  const std::size_t whole = Tier::whole_blocks(bytes);
  const auto space = kind == TierKind::host ? runtime::MemorySpace::pinned : runtime::MemorySpace::nvme;
  items_.push_back({kind, name, whole, plan.add({memory_kind, space, name, whole, 1}), 0});
  if (kind == TierKind::nvme) {
    items_.back().address = Stripes(1, FileTierOptions{}.request_bytes).align(file_space_, whole);
    file_space_ = items_.back().address + whole;
  }
  return {items_.size() - 1};
}

void TierPlan::finish(const FileOptions& files, runtime::MemoryPlan& plan) {
  if (!uses(TierKind::nvme)) return;
  staging_ = runtime::SlotPool::plan(plan, {runtime::MemoryKind::workspace, runtime::MemorySpace::pinned,
                                            "between device and files", staging_slot_bytes, staging_slots});
  if (!files.checksums) return;
  checksums_ = plan.add({runtime::MemoryKind::workspace, runtime::MemorySpace::host, "checksums of files",
                         BlockChecksums::count(file_space_) * sizeof(std::uint64_t), 1});
}

bool TierPlan::uses(TierKind kind) const noexcept {
  return std::any_of(items_.begin(), items_.end(), [kind](const Item& item) { return item.kind == kind; });
}

std::size_t TierPlan::bytes(TierKind kind) const noexcept {
  std::size_t bytes = 0;
  for (const Item& item : items_) bytes += item.kind == kind ? item.bytes : 0;
  return bytes;
}

/// A transfer through the pool, slot by slot.
struct Tiers::Staged {
  IoKind kind = IoKind::read;
  std::uint64_t address = 0;
  StridedLayout runs;
  runtime::Handler one_done;  // for each slot

  /// Calls f(run, begin, count, at) for the part of each range in [begin, begin + bytes) of the transfer; `at` is
  /// relative to `begin`.
  template <typename F>
  void for_runs(std::size_t begin, std::size_t bytes, F&& f) const {
    std::size_t at = 0;
    for (const auto& run : runs) {
      const std::size_t first = std::max(begin, at), last = std::min(begin + bytes, at + run.size());
      if (first < last) f(run.data() + (first - at), last - first, first - begin);
      at += run.size();
    }
  }
};

Tiers::Tiers(runtime::EventLoop& loop, runtime::Device& device, const TierPlan& plan, const FileOptions& files,
             const runtime::Arena& arena, int rank)
    : loop_(&loop), device_(&device), arena_(&arena), places_(plan.items()), pool_(arena, plan.staging()) {
  if (places_.empty()) return;
  fetch_stream_ = device.make_stream("fetch", runtime::StreamWidth::one);
  store_stream_ = device.make_stream("store", runtime::StreamWidth::one);
  if (!plan.uses(TierKind::nvme)) return;
  if (files.make) {
    files_ = files.make(loop, rank);
  } else {
    files_ = std::make_unique<FileTier>(
        loop, FileTierOptions{.directories = files.directories, .rank = rank, .checksums = files.checksums});
  }
  std::span<std::uint64_t> sums;
  if (files.checksums)
    sums = {arena.slot_as<std::uint64_t>(plan.checksums()), BlockChecksums::count(plan.file_space())};
  files_->start(plan.file_space(), sums);
}

Tiers::~Tiers() {
  for (auto* stream : {fetch_stream_.get(), store_stream_.get()}) {
    if (stream == nullptr) continue;
    try {
      stream->synchronize();
    } catch (const std::exception&) {  // already reported through Device::on_failure
    }
  }
}

void Tiers::move_file(IoKind kind, std::uint64_t address, std::span<std::byte> memory, runtime::Handler done) {
  files_->move(kind, address, memory,
               loop_->ends({.part = "tiers",
                            .text = kind == IoKind::read ? "a read of a file" : "a write of a file",
                            .patience = runtime::file_patience},
                           *files_, std::move(done)));
}

void Tiers::move(IoKind kind, TierRegion region, std::size_t offset, StridedLayout runs, runtime::Handler done) {
  const TierPlan::Item& place = places_.at(region.index);
  const std::size_t bytes = bytes_of(runs);
  expect(offset % Tier::block_bytes == 0 && offset + bytes <= place.bytes,
         "{} is out of range: {} bytes at {} of {}, which has {}", kind == IoKind::read ? "fetch" : "store", bytes,
         offset, place.name, place.bytes);
  if (place.kind == TierKind::host) return copy_runs(kind, place, offset, runs, std::move(done));
  done = traced(region, std::move(done));
  if (direct(runs)) return move_file(kind, place.address + offset, runs.front(), std::move(done));
  stage(kind, place.address + offset, std::move(runs), std::move(done));
}

std::span<std::byte> Tiers::memory(TierRegion region) const {
  const TierPlan::Item& place = places_.at(region.index);
  expect(place.kind == TierKind::host, "region {} is not in host memory", region.index);
  return {arena_->slot(place.memory), place.bytes};
}

runtime::Handler Tiers::traced(TierRegion region, runtime::Handler done) const {
  if (trace_ == nullptr) return done;
  return [trace = trace_, began = trace_->now(), index = static_cast<int>(region.index), done = std::move(done)] {
    trace->add(runtime::SpanKind::load, runtime::Trace::Lane::files, began, trace->now(), index);
    done();
  };
}

bool Tiers::direct(const StridedLayout& runs) const {
  return runs.size() == 1 && on_block(runs.front().data()) && runs.front().size() % Tier::block_bytes == 0 &&
         device_->host_reaches(runs.front().data());
}

void Tiers::copy_runs(IoKind kind, const TierPlan::Item& place, std::size_t offset, const StridedLayout& runs,
                      runtime::Handler done) {
  const bool fetches = kind == IoKind::read;
  const runtime::StreamView stream = fetches ? *fetch_stream_ : *store_stream_;
  std::byte* there = arena_->slot(place.memory) + offset;
  for (std::size_t first = 0; first < runs.size();) {
    const auto [count, stride] = alike(runs, first);
    const std::span<std::byte> run = runs[first];
    if (fetches) {
      runtime::copy_runs(stream, run.data(), stride, there, run.size(), run.size(), count);
    } else {
      runtime::copy_runs(stream, there, run.size(), run.data(), stride, run.size(), count);
    }
    there += count * run.size();
    first += count;
  }
  loop_->after_work(stream, {"tiers", fetches ? "a copy from host memory" : "a copy to host memory"},
                    std::move(done));
}

void Tiers::stage(IoKind kind, std::uint64_t address, StridedLayout runs, runtime::Handler done) {
  const std::size_t bytes = bytes_of(runs);
  const std::size_t slot_bytes = TierPlan::staging_slot_bytes;
  const std::size_t pieces = runtime::ceil_divide(bytes, slot_bytes);
  if (pieces == 0) return loop_->post(std::move(done));
  const auto staged =
      std::make_shared<Staged>(Staged{kind, address, std::move(runs), runtime::last_of(pieces, std::move(done))});
  for (std::size_t begin = 0; begin < bytes; begin += slot_bytes) {
    const std::size_t count = std::min(slot_bytes, bytes - begin);
    pool_.when_free([this, staged, begin, count](const runtime::SlotPool::Slot& slot) {
      loop_->post([this, staged, begin, count, slot] { stage_piece(staged, begin, count, slot); });
    });
  }
}

void Tiers::stage_piece(const std::shared_ptr<Staged>& staged, std::size_t begin, std::size_t bytes,
                        const runtime::SlotPool::Slot& slot) {
  const std::span<std::byte> blocks(slot.data(), Tier::whole_blocks(bytes));
  const auto over = [this, staged, slot] {
    slot.release();
    pool_.serve();
    staged->one_done();
  };
  const std::uint64_t address = staged->address + begin;
  if (staged->kind == IoKind::read) {
    return move_file(IoKind::read, address, blocks, [this, staged, begin, bytes, blocks, over] {
      staged->for_runs(begin, bytes, [&](std::byte* run, std::size_t count, std::size_t at) {
        runtime::copy(*fetch_stream_, run, blocks.data() + at, count);
      });
      loop_->after_work(*fetch_stream_, {"tiers", "a copy after a read"}, over);
    });
  }
  staged->for_runs(begin, bytes, [&](std::byte* run, std::size_t count, std::size_t at) {
    runtime::copy(*store_stream_, blocks.data() + at, run, count);
  });
  loop_->after_work(*store_stream_, {"tiers", "a copy before a write"},
                    [this, address, blocks, over] { move_file(IoKind::write, address, blocks, over); });
}

}  // namespace ranvier::offload
