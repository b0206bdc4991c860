#include "actors/rank/checkpoint_files.hpp"

#include "actors/checkpoint/scalars_json.hpp"
#include "runtime/base/error.hpp"
#include "runtime/files/atomic_file.hpp"

#include <cstring>
#include <exception>
#include <filesystem>
#include <type_traits>
#include <utility>

namespace ranvier::actors {

using offload::CheckpointSegment;
using offload::Manifest;
using offload::Tier;

namespace {

std::string file_name(std::size_t rank) { return fmt::format("rank-{:04}.data", rank); }

}  // namespace

CheckpointFiles::CheckpointFiles(runtime::EventLoop& loop, const RankPlan& plan, offload::CheckpointFolder& folder,
                                 Options options, const offload::FileSystem& storage)
    : loop_(&loop),
      folder_(&folder),
      options_(std::move(options)),
      writer_(loop, storage, options_.depth),
      rank_(static_cast<std::size_t>(plan.rank)) {
  std::vector<std::size_t> first_array;  // by unit of the architecture
  for (const models::UnitSpec& unit : plan.architecture->units()) {
    first_array.push_back(arrays_.size());
    for (std::size_t array = 0; array < plan.options.tiers.arrays_of(unit.trained); ++array) {
      const StateKind kind = kind_of(unit.trained, array);
      const runtime::DType dtype = dtype_of(kind, plan.architecture->precision, plan.options.tiers);
      const std::size_t elements =
          stored_elements(kind, unit, unit.elements(), plan.options.tiers).before(unit.elements());
      arrays_.push_back({unit.name, to_string(optimizer_states[array]), dtype, elements});
      whole_bytes_ += runtime::bytes_of(dtype, elements);
    }
  }
  for (const StatePiece& piece : plan.snapshot.pieces) {
    const UnitState& unit = plan.states->all()[piece.unit];
    pieces_.push_back({.array = static_cast<std::uint32_t>(first_array[unit.global_index] + piece.array),
                       .begin = unit.view(kind_of(unit.trained(), piece.array)).stored.before(piece.begin),
                       .count = piece.count,
                       .offset = bytes_});
    bytes_ += Tier::whole_blocks(piece.bytes());
  }
}

offload::CheckpointFileWriter::Outcome CheckpointFiles::then(runtime::Handler next) {
  return [this, next = std::move(next)](const std::string& failure) {
    if (failure_.empty()) failure_ = failure;
    next();
  };
}

void CheckpointFiles::is_last() {
  writer_.insist(retry_);
  if (rank_ == 0) folder_->insist(retry_);
}

void CheckpointFiles::begin(std::int64_t) {
  if (options_.about) about_ = options_.about();
}

void CheckpointFiles::prepare(std::int64_t step) {
  const std::filesystem::path part = folder_->prepare(step, options_.job);
  removed_ = 0;
  for (int keep = options_.keep - 1; keep >= 1 && runtime::free_bytes_beside(part) < whole_bytes_; --keep)
    removed_ += folder_->prune(keep, options_.archive_every).size();
}

void CheckpointFiles::open(std::int64_t step, runtime::Handler opened) {
  failure_.clear();
  if (pieces_.empty()) return loop_->post(std::move(opened));
  writer_.open(folder_->part_of(step, options_.job) / file_name(rank_), bytes_, then(std::move(opened)));
}

void CheckpointFiles::put(const StatePiece&, std::size_t number, std::span<const std::byte> blocks,
                          std::uint64_t hash, runtime::Handler done) {
  pieces_[number].hash = hash;
  if (!failure_.empty()) return done();
  writer_.write(pieces_[number].offset, blocks, then(std::move(done)));
}

void CheckpointFiles::close(std::function<void(CheckpointShare)> done) {
  const auto closed = [this, done = std::move(done)] {
    CheckpointShare share{.failure = failure_, .bytes = bytes_, .data = {}};
    const auto data = std::as_bytes(std::span(pieces_));
    if (failure_.empty()) share.data.assign(data.begin(), data.end());
    done(std::move(share));
  };
  if (pieces_.empty()) return closed();
  writer_.close(then(closed));
}

std::string CheckpointFiles::commit(std::int64_t step, std::span<const StateScalar> scalars,
                                    std::span<const CheckpointShare> shares) {
  static_assert(std::is_trivially_copyable_v<CheckpointSegment>);
  Manifest manifest{.step = step, .arrays = arrays_, .training = scalars_to_json(scalars), .about = about_};
  for (std::size_t rank = 0; rank < shares.size(); ++rank) {
    const std::vector<std::byte>& data = shares[rank].data;
    if (data.empty()) continue;
    std::vector<CheckpointSegment> pieces(data.size() / sizeof(CheckpointSegment));
    std::memcpy(pieces.data(), data.data(), data.size());
    for (CheckpointSegment& piece : pieces) piece.file = static_cast<std::uint32_t>(manifest.files.size());
    manifest.files.push_back({file_name(rank), shares[rank].bytes});
    manifest.pieces.insert(manifest.pieces.end(), pieces.begin(), pieces.end());
  }
  folder_->commit(step, options_.job, manifest);
  try {
    folder_->prune(options_.keep, options_.archive_every);
  } catch (const std::exception& error) {
    return fmt::format("older checkpoints remain: {}", error.what());
  }
  if (removed_ == 0) return {};
  return fmt::format(
      "{} older checkpoints were removed before the write for lack of space; use a larger disk for `checkpoint`, "
      "or a smaller `checkpoint_keep`",
      removed_);
}

void CheckpointFiles::discard(std::int64_t step) noexcept {
  try {
    folder_->give_up(step, options_.job);
  } catch (const std::exception&) {  // the next run's lock() clears it
  }
}

}  // namespace ranvier::actors
