#include "runtime/device/cpu_memory.hpp"

#include "runtime/base/arithmetic.hpp"
#include "runtime/base/error.hpp"
#include "runtime/device/arena.hpp"
#include "runtime/device/memory_limit.hpp"
#include "runtime/host/compute_pool.hpp"
#include "runtime/host/cores.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <limits>

#include <sys/mman.h>
#include <unistd.h>

namespace ranvier::runtime {
namespace {

constexpr std::size_t page_bytes = 4096;
constexpr std::size_t huge_page_bytes = std::size_t{2} << 20;

std::size_t physical_bytes() {
  return static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

/// Zeroed pages, aligned to a huge page if they can contain one; nullptr on failure.
std::byte* map(std::size_t bytes) {
  if (bytes > std::numeric_limits<std::ptrdiff_t>::max() - 2 * huge_page_bytes) {
    errno = ENOMEM;
    return nullptr;
  }
  const bool huge = bytes >= huge_page_bytes;
  const std::size_t mapped = round_up(bytes, page_bytes);
  const std::size_t reserved = mapped + (huge ? huge_page_bytes : 0);
  void* start = mmap(nullptr, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED) return nullptr;
  auto* first = static_cast<std::byte*>(start);
  if (!huge) return first;

  const auto address = reinterpret_cast<std::uintptr_t>(first);
  const std::size_t before = round_up(address, huge_page_bytes) - address;
  if (before != 0) munmap(first, before);
  munmap(first + before + mapped, huge_page_bytes - before);
  madvise(first + before, mapped, MADV_HUGEPAGE);  // only a hint: small pages are slower, not wrong
  return first + before;
}

/// Touches the pages of large memory on all usable cores, at least `bytes_per_thread` per thread, since the system
/// clears each page at first use. Smaller memory is left to its first use.
void take_pages(std::byte* data, std::size_t bytes) {
  constexpr std::size_t bytes_per_thread = std::size_t{64} << 20;
  const auto cores = static_cast<std::size_t>(available_cores());
  const auto threads = static_cast<int>(std::min(cores, bytes / bytes_per_thread));
  if (threads == 0) return;
  ComputePool pool(threads);
  pool.run([=](int thread, int all) {
    const Share share = share_of(bytes, thread, all, huge_page_bytes);
    for (std::size_t at = share.begin; at < share.end; at += page_bytes)
      *static_cast<volatile std::byte*>(data + at) = {};
  });
}

void unmap(std::byte* data, std::size_t bytes) noexcept { munmap(data, round_up(bytes, page_bytes)); }

}  // namespace

CpuMemory::CpuMemory(std::optional<std::size_t> budget_bytes) : budget_(budget_bytes.value_or(physical_bytes())) {}

Buffer CpuMemory::allocate(std::size_t bytes, MemorySpace space) {
  if (bytes == 0) return {};
  const bool counts = space == MemorySpace::device;
  if (counts) {
    const std::size_t used = used_->fetch_add(bytes);
    if (used > budget_ || bytes > budget_ - used) {
      used_->fetch_sub(bytes);
      refuse_allocation(bytes, used, budget_);
    }
  }
  std::byte* data = map(bytes);
  if (data == nullptr) {
    const int error = errno;
    if (counts) used_->fetch_sub(bytes);
    fail(ErrorCode::memory, "the system refused {} ({} bytes) of {} memory: {}", format_bytes(bytes), bytes,
         to_string(space), std::strerror(error));
  }
  Buffer buffer(data, bytes, [counts, used = used_](std::byte* released, std::size_t size) {
    unmap(released, size);
    if (counts) used->fetch_sub(size);
  });
  if (space == MemorySpace::pinned) take_pages(data, bytes);
  return buffer;
}

}  // namespace ranvier::runtime
