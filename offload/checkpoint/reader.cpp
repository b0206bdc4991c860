#include "offload/checkpoint/reader.hpp"

#include "offload/checkpoint/folder.hpp"
#include "runtime/base/error.hpp"
#include "runtime/files/xxh3.hpp"
#include "runtime/kernels/int8_block.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include <pthread.h>
#include <sys/mman.h>

namespace ranvier::offload {

namespace {

/// Buffer for one segment, on a huge page if available.
class SegmentBuffer {
 public:
  SegmentBuffer()
      : data_(static_cast<std::byte*>(std::aligned_alloc(checkpoint_segment_bytes, checkpoint_segment_bytes)),
              &std::free) {
    if (!data_) throw std::bad_alloc();
    // A request over scattered small pages may exceed the number of segments that a disk accepts.
    madvise(data_.get(), checkpoint_segment_bytes, MADV_HUGEPAGE);
  }
  [[nodiscard]] std::span<std::byte> first(std::size_t bytes) const { return {data_.get(), bytes}; }

 private:
  std::unique_ptr<std::byte[], void (*)(void*)> data_;
};

/// Reads segments and verifies their checksums. One per reading thread.
class SegmentLoader {
 public:
  struct Problem {
    ErrorCode code;
    std::string what;  ///< "the 4096 bytes at offset 8192, elements 0 to 7 of m of h.0, …", for the segment's file
  };

  /// All arguments must outlive the loader.
  SegmentLoader(const FileSystem& storage, const std::filesystem::path& checkpoint, const Manifest& manifest)
      : storage_(storage), checkpoint_(checkpoint), manifest_(manifest) {}

  /// Reads complete blocks, with O_DIRECT if possible. Empty: `to` has the written data.
  [[nodiscard]] std::optional<Problem> load(const CheckpointSegment& piece, const SegmentBuffer& to) {
    const std::span<std::byte> blocks = to.first(manifest_.block_bytes_of(piece));
    const CheckpointArray& array = manifest_.arrays[piece.array];
    const auto problem = [&](ErrorCode code, const std::string& what) {
      return Problem{
          code, fmt::format("the {} bytes at offset {}, elements {} to {} of {} of {}, {}", blocks.size(),
                            piece.offset, piece.begin, piece.begin + piece.count, array.name, array.unit, what)};
    };
    if (const int result = read(piece, blocks); result < 0) {
      if (result == -ENODATA) return problem(ErrorCode::data, "are incomplete: the file is truncated");
      if (result == -ENOENT) return problem(ErrorCode::data, "are missing: file not found");
      return problem(ErrorCode::io, fmt::format("cannot be read: {}", std::strerror(-result)));
    }
    const std::uint64_t hash = runtime::xxh3(blocks);
    if (hash == piece.hash) return std::nullopt;
    return problem(
        ErrorCode::data,
        fmt::format("changed after they were written: checksum {:016x} instead of {:016x}", hash, piece.hash));
  }

 private:
  [[nodiscard]] int read(const CheckpointSegment& piece, std::span<std::byte> to) {
    if (!open_ || open_->get() < 0 || piece.file != file_) {
      file_ = piece.file;
      open_.emplace(storage_, storage_.open_to_read(checkpoint_ / manifest_.files[file_].name, direct_));
    }
    const int result = open_->get() < 0 ? open_->get() : storage_.read_all(open_->get(), piece.offset, to);
    if (result != -EINVAL || !std::exchange(direct_, false)) return result;
    open_.reset();
    return read(piece, to);
  }

  const FileSystem& storage_;
  const std::filesystem::path& checkpoint_;
  const Manifest& manifest_;
  std::uint32_t file_ = 0;
  std::optional<OpenFile> open_;  // file number `file_`
  bool direct_ = true;
};

/// Converts elements [begin, end) of blocks.
void floats_of_elements(float* to, const runtime::Int8Block* blocks, runtime::DType dtype, std::uint64_t begin,
                        std::uint64_t end) {
  for (std::uint64_t at = begin; at < end;) {
    const std::uint64_t in_block = at % runtime::int8_block_elements;
    const std::uint64_t count = std::min(end - at, runtime::int8_block_elements - in_block);
    std::array<float, runtime::int8_block_elements> values;
    runtime::floats_of_blocks(values.data(), blocks + at / runtime::int8_block_elements, dtype, in_block + count);
    to = std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(in_block), count, to);
    at += count;
  }
}

}  // namespace

struct CheckpointReader::State {
  enum class Stage { empty, wanted, loading, loaded };

  /// A segment that is loaded or being loaded.
  struct LoadedPiece {
    SegmentBuffer memory;
    std::uint32_t piece = 0;
    Stage stage = Stage::empty;
    bool delivered = false;  // copied to the current destination
    std::optional<SegmentLoader::Problem> problem;
  };

  /// Destination of the current read.
  struct Destination {
    std::uint32_t array = 0;
    std::uint64_t begin = 0, end = 0;  // elements; an empty range: no read is running
    float* to = nullptr;

    [[nodiscard]] bool wants(const CheckpointSegment& piece) const {
      return piece.array == array && piece.begin < end && begin < piece.begin + piece.count;
    }
  };

  State(std::filesystem::path folder, CheckpointReaderOptions options, const FileSystem& system);
  ~State();

  void serve();
  [[nodiscard]] std::span<const std::uint32_t> pieces_of(std::uint32_t array, std::uint64_t begin,
                                                         std::uint64_t end) const;
  [[nodiscard]] std::span<const std::uint32_t> announced_from(std::uint32_t piece);
  [[nodiscard]] const LoadedPiece& wait_for(std::span<const std::uint32_t> pieces);
  [[nodiscard]] LoadedPiece* slot_of(std::uint32_t piece);
  bool want(std::uint32_t piece, std::span<const std::uint32_t> kept);
  void deliver(const LoadedPiece& slot, const Destination& destination) const;
  void begin_read(const Destination& to);
  void end_read();

  // Constant after construction.
  const std::filesystem::path path;
  const FileSystem& storage;
  const Manifest manifest;
  std::map<std::pair<std::string_view, std::string_view>, std::uint32_t> arrays;
  std::vector<std::vector<std::uint32_t>> pieces;  // segments of each array, in order

  // Used by the calling thread only.
  std::uint32_t last_array = 0;  // array and element at which the last read ended
  std::uint64_t last_end = 0;
  std::size_t further = 0;               // segments to read ahead beyond the requested ones
  std::vector<std::uint32_t> announced;  // segments to read, starting at the last one read
  std::size_t next_announced = 0;

  // Guarded by `mutex`, except for the memory of slots that are loading or loaded.
  std::mutex mutex;
  std::condition_variable wanted, loaded;
  std::vector<LoadedPiece> slots;
  std::deque<LoadedPiece*> queue;
  Destination destination;
  int delivering = 0;  // threads that copy to the destination
  bool closing = false;

  std::vector<std::thread> threads;
};

CheckpointReader::State::State(std::filesystem::path folder, CheckpointReaderOptions options,
                               const FileSystem& system)
    : path(std::move(folder)),
      storage(system),
      manifest(options.check_files ? open_checkpoint(system, path) : read_manifest(system, path)),
      pieces(manifest.arrays.size()),
      slots(static_cast<std::size_t>(options.ahead) + 1) {
  for (std::uint32_t i = 0; i < manifest.arrays.size(); ++i)
    arrays.try_emplace({manifest.arrays[i].unit, manifest.arrays[i].name}, i);
  for (std::uint32_t i = 0; i < manifest.pieces.size(); ++i) pieces[manifest.pieces[i].array].push_back(i);
  for (auto& of_array : pieces)
    std::ranges::sort(of_array, {}, [this](std::uint32_t piece) { return manifest.pieces[piece].begin; });
  for (int i = 0; i < options.threads; ++i) {
    threads.emplace_back([this] { serve(); });
    pthread_setname_np(threads.back().native_handle(), "checkpoint read");
  }
}

CheckpointReader::State::~State() {
  {
    const std::lock_guard lock(mutex);
    closing = true;
  }
  wanted.notify_all();
  for (std::thread& thread : threads) thread.join();
}

void CheckpointReader::State::serve() {
  SegmentLoader loader(storage, path, manifest);
  std::unique_lock lock(mutex);
  for (;;) {
    wanted.wait(lock, [this] { return closing || !queue.empty(); });
    if (closing) return;
    LoadedPiece& slot = *queue.front();
    queue.pop_front();
    slot.stage = Stage::loading;
    lock.unlock();
    const CheckpointSegment& piece = manifest.pieces[slot.piece];
    auto problem = loader.load(piece, slot.memory);
    lock.lock();
    slot.problem = std::move(problem);
    if (!slot.problem && destination.wants(piece)) {
      const Destination to = destination;
      ++delivering;
      lock.unlock();
      deliver(slot, to);
      lock.lock();
      slot.delivered = true;
      --delivering;
    }
    slot.stage = Stage::loaded;
    loaded.notify_one();
  }
}

/// Copies the requested elements of a segment to the destination.
void CheckpointReader::State::deliver(const LoadedPiece& slot, const Destination& destination) const {
  const CheckpointSegment& piece = manifest.pieces[slot.piece];
  const std::uint64_t from = std::max(destination.begin, piece.begin);
  const std::uint64_t until = std::min(destination.end, piece.begin + piece.count);
  float* const to = destination.to + (from - destination.begin);
  const runtime::DType dtype = manifest.arrays[piece.array].dtype;
  if (runtime::is_in_blocks(dtype)) {
    const auto* blocks =
        reinterpret_cast<const runtime::Int8Block*>(slot.memory.first(manifest.bytes_of(piece)).data());
    return floats_of_elements(to, blocks, dtype, from - piece.begin, until - piece.begin);
  }
  runtime::with_float_type(dtype, [&](auto type) {
    using Element = decltype(type);
    const auto* elements =
        reinterpret_cast<const Element*>(slot.memory.first(piece.count * sizeof(Element)).data()) +
        (from - piece.begin);
    std::transform(elements, elements + (until - from), to,
                   [](Element element) { return runtime::to_float(element); });
  });
}

/// From now on, threads copy each segment that they load; the caller copies segments loaded before.
void CheckpointReader::State::begin_read(const Destination& to) {
  const std::lock_guard lock(mutex);
  for (LoadedPiece& slot : slots) slot.delivered = false;
  destination = to;
}

/// Returns when no thread writes to the destination.
void CheckpointReader::State::end_read() {
  std::unique_lock lock(mutex);
  destination = {};
  loaded.wait(lock, [this] { return delivering == 0; });
}

CheckpointReader::State::LoadedPiece* CheckpointReader::State::slot_of(std::uint32_t piece) {
  const auto slot = std::find_if(slots.begin(), slots.end(), [&](const LoadedPiece& each) {
    return each.stage != Stage::empty && each.piece == piece;
  });
  return slot == slots.end() ? nullptr : &*slot;
}

/// Requests a segment, and replaces one that is not in `kept`. Returns false if no slot is free.
bool CheckpointReader::State::want(std::uint32_t piece, std::span<const std::uint32_t> kept) {
  if (slot_of(piece) != nullptr) return true;
  const auto slot = std::find_if(slots.begin(), slots.end(), [&](const LoadedPiece& each) {
    return each.stage == Stage::empty ||
           (each.stage != Stage::loading && std::find(kept.begin(), kept.end(), each.piece) == kept.end());
  });
  if (slot == slots.end()) return false;
  std::erase(queue, &*slot);
  slot->piece = piece;
  slot->stage = Stage::wanted;
  slot->delivered = false;
  slot->problem.reset();
  queue.push_back(&*slot);
  wanted.notify_one();
  return true;
}

/// Segments with elements [begin, end) of an array; the range must not be empty.
std::span<const std::uint32_t> CheckpointReader::State::pieces_of(std::uint32_t array, std::uint64_t begin,
                                                                  std::uint64_t end) const {
  const std::vector<std::uint32_t>& all = pieces[array];
  const auto begins_behind = [&](std::uint64_t element, std::uint32_t piece) {
    return element < manifest.pieces[piece].begin;
  };
  const auto first = std::upper_bound(all.begin(), all.end(), begin, begins_behind) - 1;
  return {first, std::upper_bound(first, all.end(), end - 1, begins_behind)};
}

/// Announced segments, starting at `piece`; empty if it was not announced.
std::span<const std::uint32_t> CheckpointReader::State::announced_from(std::uint32_t piece) {
  const auto found =
      std::find(announced.begin() + static_cast<std::ptrdiff_t>(next_announced), announced.end(), piece);
  if (found == announced.end()) return {};
  next_announced = static_cast<std::size_t>(found - announced.begin());
  return {found, announced.end()};
}

/// Requests the segments, as many as there are slots. Returns the first one when it is loaded.
const CheckpointReader::State::LoadedPiece& CheckpointReader::State::wait_for(
    std::span<const std::uint32_t> window) {
  window = window.first(std::min(window.size(), slots.size()));
  std::unique_lock lock(mutex);
  for (;;) {
    for (const std::uint32_t piece : window)
      if (!want(piece, window)) break;
    if (const LoadedPiece* slot = slot_of(window.front()); slot != nullptr && slot->stage == Stage::loaded)
      return *slot;
    loaded.wait(lock);
  }
}

CheckpointReader::CheckpointReader(std::filesystem::path checkpoint, CheckpointReaderOptions options,
                                   const FileSystem& storage) {
  expect(options.threads > 0 && options.ahead >= 0, "invalid options: {} threads, {} segments ahead",
         options.threads, options.ahead);
  state_ = std::make_unique<State>(std::move(checkpoint), options, storage);
}

CheckpointReader::~CheckpointReader() = default;

const Manifest& CheckpointReader::manifest() const noexcept { return state_->manifest; }

const std::filesystem::path& CheckpointReader::path() const noexcept { return state_->path; }

const CheckpointArray* CheckpointReader::find(std::string_view unit, std::string_view array) const {
  const auto found = state_->arrays.find({unit, array});
  return found == state_->arrays.end() ? nullptr : &state_->manifest.arrays[found->second];
}

void CheckpointReader::will_read(std::span<const CheckpointRange> ranges) {
  State& state = *state_;
  state.announced.clear();
  state.next_announced = 0;
  for (const CheckpointRange& range : ranges) {
    const auto found = state.arrays.find({range.unit, range.array});
    if (found == state.arrays.end() || range.begin >= range.end) continue;
    const auto pieces = state.pieces_of(found->second, range.begin, range.end);
    state.announced.insert(state.announced.end(), pieces.begin(), pieces.end());
  }
}

void CheckpointReader::read(std::string_view unit, std::string_view array, std::uint64_t begin,
                            std::span<float> to) {
  State& state = *state_;
  const auto found = state.arrays.find({unit, array});
  if (found == state.arrays.end())
    fail(ErrorCode::data, "{}: {} of {} is missing", state.path.string(), array, unit);
  const CheckpointArray& of = state.manifest.arrays[found->second];
  const std::uint64_t end = begin + to.size();
  if (end > of.elements || end < begin)
    fail(ErrorCode::data, "{}: {} of {} has {} elements, but {} to {} were requested", state.path.string(), array,
         unit, of.elements, begin, end);
  if (of.dtype == runtime::DType::f64 || of.dtype == runtime::DType::i32)
    fail(ErrorCode::data, "{}: {} of {} has elements of type {}, not floats", state.path.string(), array, unit,
         to_string(of.dtype));
  if (to.empty()) return;

  const bool follows = state.last_array == found->second && state.last_end == begin && begin > 0;
  state.further = follows ? std::min(state.slots.size() - 1, 2 * state.further + 1) : 0;
  state.last_array = found->second;
  state.last_end = end;

  const std::span<const std::uint32_t> wanted = state.pieces_of(found->second, begin, end);
  const std::span<const std::uint32_t> all = state.pieces[found->second];
  const auto ahead = std::min<std::size_t>(
      state.further, static_cast<std::size_t>(all.data() + all.size() - (wanted.data() + wanted.size())));
  const State::Destination destination{found->second, begin, end, to.data()};
  struct Reading {
    Reading(State& of, const State::Destination& to) : state(of) { state.begin_read(to); }
    ~Reading() { state.end_read(); }
    State& state;
  } const reading(state, destination);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const CheckpointSegment& piece = state.manifest.pieces[wanted[i]];
    auto window = state.announced_from(wanted[i]);
    if (window.empty()) window = {wanted.data() + i, wanted.size() - i + ahead};
    const State::LoadedPiece& slot = state.wait_for(window);
    if (slot.problem)
      throw Error(
          slot.problem->code,
          fmt::format("{}: {}", (state.path / state.manifest.files[piece.file].name).string(), slot.problem->what));
    if (!slot.delivered) state.deliver(slot, destination);
  }
}

namespace {

/// Files of wrong size, and unknown files.
std::vector<CheckpointDamage> damaged_files(const FileSystem& storage, const std::filesystem::path& checkpoint,
                                            const Manifest& manifest, std::vector<std::uint64_t>& sizes) {
  std::vector<CheckpointDamage> damages;
  std::set<std::string> known{Manifest::file_name};
  for (const CheckpointFile& file : manifest.files) {
    known.insert(file.name);
    const std::int64_t size = storage.size(checkpoint / file.name);
    sizes.push_back(size < 0 ? 0 : static_cast<std::uint64_t>(size));
    if (size < 0) {
      damages.push_back({file.name, fmt::format("cannot read: {}", std::strerror(static_cast<int>(-size)))});
    } else if (sizes.back() != file.bytes) {
      damages.push_back({file.name, fmt::format("wrong size: {} bytes instead of {}", size, file.bytes)});
    }
  }
  std::vector<std::string> names;
  if (const int result = storage.list(checkpoint, names); result < 0)
    damages.push_back({".", fmt::format("cannot read: {}", std::strerror(-result))});
  std::sort(names.begin(), names.end());
  for (const std::string& name : names)
    if (!known.contains(name)) damages.push_back({name, "not part of the checkpoint"});
  return damages;
}

}  // namespace

std::vector<CheckpointDamage> verify_checkpoint(const std::filesystem::path& checkpoint, int threads,
                                                const std::function<void(std::uint64_t bytes)>& progress,
                                                const FileSystem& storage) {
  Manifest manifest;
  try {
    manifest = read_manifest(storage, checkpoint);
  } catch (const Error& error) {
    return {{Manifest::file_name, error.what()}};
  }
  std::vector<std::uint64_t> sizes;
  std::vector<CheckpointDamage> damages = damaged_files(storage, checkpoint, manifest, sizes);

  std::vector<CheckpointSegment> pieces;
  for (const CheckpointSegment& piece : manifest.pieces)
    if (piece.offset + manifest.block_bytes_of(piece) <= sizes[piece.file]) pieces.push_back(piece);
  std::ranges::sort(pieces, {}, [](const CheckpointSegment& piece) { return std::pair(piece.file, piece.offset); });

  std::mutex mutex;
  std::size_t next = 0;
  std::vector<std::optional<std::string>> problems(pieces.size());
  const auto work = [&] {
    SegmentLoader loader(storage, checkpoint, manifest);
    const SegmentBuffer memory;
    std::unique_lock lock(mutex);
    while (next < pieces.size()) {
      const std::size_t index = next++;
      lock.unlock();
      auto problem = loader.load(pieces[index], memory);
      lock.lock();
      if (problem) problems[index] = std::move(problem->what);
      if (progress) progress(manifest.block_bytes_of(pieces[index]));
    }
  };
  std::vector<std::thread> workers;
  for (int i = 1; i < threads; ++i) workers.emplace_back(work);
  work();
  for (std::thread& worker : workers) worker.join();
  for (std::size_t i = 0; i < pieces.size(); ++i)
    if (problems[i]) damages.push_back({manifest.files[pieces[i].file].name, std::move(*problems[i])});
  return damages;
}

}  // namespace ranvier::offload
