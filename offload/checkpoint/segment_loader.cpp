#include "offload/checkpoint/segment_loader.hpp"

#include "offload/tier.hpp"
#include "runtime/files/xxh3.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <new>

#include <sys/mman.h>

namespace ranvier::offload {

PieceBuffer::PieceBuffer()
    : data_(static_cast<std::byte*>(std::aligned_alloc(checkpoint_segment_bytes, checkpoint_segment_bytes)),
            &std::free) {
  if (!data_) throw std::bad_alloc();
  // A request over scattered small pages may exceed the number of segments that a disk accepts.
  madvise(data_.get(), checkpoint_segment_bytes, MADV_HUGEPAGE);
}

std::optional<SegmentLoader::Problem> SegmentLoader::load(const CheckpointSegment& piece, const PieceBuffer& to) {
  const std::span<std::byte> blocks = to.first(manifest_.block_bytes_of(piece));
  const CheckpointArray& array = manifest_.arrays[piece.array];
  const auto problem = [&](ErrorCode code, const std::string& what) {
    return Problem{code,
                   fmt::format("the {} bytes at offset {}, elements {} to {} of {} of {}, {}", blocks.size(),
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

int SegmentLoader::read(const CheckpointSegment& piece, std::span<std::byte> to) {
  if (const int result = open(piece.file); result < 0) return result;
  const int result = storage_.read_all(descriptor_, piece.offset, to);
  if (result != -EINVAL || !direct_) return result;
  direct_ = false;
  close();
  return read(piece, to);
}

int SegmentLoader::open(std::uint32_t file) {
  if (file == file_) return 0;
  close();
  const std::filesystem::path path = checkpoint_ / manifest_.files[file].name;
  int descriptor = storage_.open_to_read(path, direct_);
  if (descriptor == -EINVAL && direct_) {
    direct_ = false;
    descriptor = storage_.open_to_read(path, false);
  }
  if (descriptor < 0) return descriptor;
  descriptor_ = descriptor;
  file_ = file;
  return 0;
}

void SegmentLoader::close() {
  if (descriptor_ >= 0) storage_.close(descriptor_);
  descriptor_ = -1;
  file_ = std::numeric_limits<std::uint32_t>::max();
}

}  // namespace ranvier::offload
