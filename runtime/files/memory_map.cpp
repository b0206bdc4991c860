#include "runtime/files/memory_map.hpp"

#include "runtime/base/console.hpp"
#include "runtime/base/error.hpp"
#include "runtime/files/file_descriptor.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <iterator>
#include <mutex>
#include <string>
#include <utility>

namespace ranvier::runtime {
namespace {

/// Mapped file, for the signal handler. Entries are reused but never removed.
struct Mapping {
  std::atomic<std::uintptr_t> begin{0}, end{0};
  std::atomic<bool> in_use{true};
  std::string path;  // constant while begin is set
  Mapping* next = nullptr;
};

std::atomic<Mapping*> mappings{nullptr};
std::atomic<int> mapping_rank{-1};
std::mutex registration;

/// Async-signal-safe, for on_bus_error().
void print(int number) noexcept {
  char digits[12];
  const auto [end, error] = std::to_chars(std::begin(digits), std::end(digits), number);
  print_stderr({digits, static_cast<std::size_t>(end - digits)});
}

void on_bus_error(int signal, siginfo_t* info, void*) {
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  for (const Mapping* mapping = mappings; mapping != nullptr; mapping = mapping->next) {
    if (address < mapping->begin || address >= mapping->end) continue;
    // Ranks that share the file fail together: rank 0 prints the error before the others wake up.
    if (mapping_rank > 0) {
      const timespec pause{std::min(mapping_rank / 4, 5), mapping_rank % 4 * 250'000'000L};
      ::nanosleep(&pause, nullptr);
    }
    print_stderr("ranvier: error: ");
    if (mapping_rank >= 0) {
      print_stderr("rank ");
      print(mapping_rank);
      print_stderr(": ");
    }
    print_stderr(mapping->path);
    print_stderr(
        ": cannot be read any more: the file was truncated, or the disk failed; do not change files that a run "
        "reads\n");
    std::_Exit(exit_code(ErrorCode::io));
  }
  ::signal(signal, SIG_DFL);  // not a mapped file: the access is repeated and ends the process
}

void note(std::span<const std::byte> bytes, const std::filesystem::path& path) {
  const std::lock_guard lock(registration);
  static const bool installed = [] {
    struct sigaction action{};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO;
    return ::sigaction(SIGBUS, &action, nullptr) == 0;
  }();
  static_cast<void>(installed);
  Mapping* free = mappings;
  while (free != nullptr && free->in_use) free = free->next;
  if (free == nullptr) {
    free = new Mapping;
    free->next = mappings;
    free->path = path.string();
    mappings = free;
  } else {
    free->path = path.string();
    free->in_use = true;
  }
  const auto begin = reinterpret_cast<std::uintptr_t>(bytes.data());
  free->begin = begin;
  free->end = begin + bytes.size();
}

void forget(std::span<const std::byte> bytes) noexcept {
  const std::lock_guard lock(registration);
  for (Mapping* mapping = mappings; mapping != nullptr; mapping = mapping->next) {
    if (!mapping->in_use || mapping->begin != reinterpret_cast<std::uintptr_t>(bytes.data())) continue;
    mapping->begin = mapping->end = 0;
    mapping->in_use = false;
  }
}

}  // namespace

void set_mapping_rank(int rank) noexcept { mapping_rank = rank; }

MemoryMap::MemoryMap(const std::filesystem::path& path) {
  const auto refuse = [&path](const char* what) {
    fail(ErrorCode::io, "{}: cannot {}: {}; check the path and its permissions", path.string(), what,
         std::strerror(errno));
  };
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // a pipe must not block here
  if (!file) refuse("open");
  struct stat status{};
  void* mapped = nullptr;
  const bool regular = ::fstat(file.get(), &status) == 0 && S_ISREG(status.st_mode);
  const auto size = static_cast<std::size_t>(status.st_size);
  if (regular && size > 0) mapped = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.get(), 0);
  if (!regular) fail(ErrorCode::io, "{}: not a regular file", path.string());
  if (mapped == MAP_FAILED) refuse("map");
  if (mapped == nullptr) return;
  bytes_ = {static_cast<const std::byte*>(mapped), size};
  note(bytes_, path);
}

void MemoryMap::will_need(std::size_t offset, std::size_t bytes) const noexcept {
  if (bytes == 0) return;
  static const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t begin = offset / page * page;  // madvise() is only a hint: errors are ignored
  ::madvise(const_cast<std::byte*>(bytes_.data()) + begin, offset + bytes - begin, MADV_WILLNEED);
}

MemoryMap::MemoryMap(MemoryMap&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MemoryMap& MemoryMap::operator=(MemoryMap&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

MemoryMap::~MemoryMap() {
  if (bytes_.empty()) return;
  forget(bytes_);
  ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace ranvier::runtime
