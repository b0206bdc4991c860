#include "tests/emulation/machine.hpp"

#include <boost/context/fiber.hpp>
#include <boost/context/fixedsize_stack.hpp>
#include <fmt/core.h>

#include <algorithm>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

namespace ranvier::emulation {

uint3 thread_index, block_index;
dim3 block_size, grid_size;

namespace {

namespace context = boost::context;

enum class State { ready, awaits_warp, awaits_block, over };

struct Copy {
  void* to;
  const void* from;
  std::size_t bytes;
};

struct Thread {
  context::fiber fiber;
  State state = State::ready;
  uint3 index{};
  bool second_turn = false;
  std::vector<Copy> copies;             // in flight
  std::vector<std::size_t> group_ends;  // indices of `copies`; copies after the last one form an open group
};

/// Two buffers: a lane may write its next value while others still read the previous ones.
struct Warp {
  alignas(16) std::byte values[2][lanes][max_exchanged_bytes];
  Exchanged places[2];
};

/// Reuses the stacks of finished fibers.
class Stacks {
 public:
  context::stack_context take() {
    if (free_.empty()) return source_.allocate();
    const context::stack_context stack = free_.back();
    free_.pop_back();
    return stack;
  }
  void give(const context::stack_context& stack) { free_.push_back(stack); }

 private:
  context::fixedsize_stack source_{128 << 10};
  std::vector<context::stack_context> free_;  // kept until the program ends
};
Stacks stacks;
struct PooledStack {
  static context::stack_context allocate() { return stacks.take(); }
  static void deallocate(context::stack_context& stack) { stacks.give(stack); }
};

const char* kernel_name = "";
const std::function<void()>* body = nullptr;
std::vector<Thread> threads;
std::vector<Warp> warps;
std::size_t current = 0;  // index in `threads`
context::fiber* scheduler = nullptr;
std::vector<std::byte> shared;
std::uint32_t chance = 1;
unsigned max_blocks_across = UINT_MAX;

constexpr std::size_t shared_alignment = 128;
constexpr std::size_t shared_bytes_at_first = std::size_t{48} << 10;
constexpr std::size_t max_shared_bytes = std::size_t{163} << 10;    // limit of an A100 (H100: 227 KiB)
std::unordered_map<const void*, std::size_t> shared_bytes_allowed;  // by kernel

/// Pseudo-random choice where a GPU guarantees no order.
std::uint32_t next_chance() {
  chance = chance * 1664525u + 1013904223u;
  return chance >> 16;
}

void perform(const Copy& copy) {
  if (copy.from == nullptr) {
    std::memset(copy.to, 0, copy.bytes);
  } else {
    std::memcpy(copy.to, copy.from, copy.bytes);
  }
}

[[noreturn]] void refuse(const std::string& what) {
  std::fputs(fmt::format("emulated kernel {}, block ({}, {}, {}): {}\n", kernel_name, block_index.x, block_index.y,
                         block_index.z, what)
                 .c_str(),
             stderr);
  std::abort();
}

void suspend(State state) {
  threads[current].state = state;
  *scheduler = std::move(*scheduler).resume();
}

void begin(Thread& thread) {
  thread.state = State::ready;
  thread.copies.clear();
  thread.group_ends.clear();
  thread.fiber = context::fiber(std::allocator_arg, PooledStack{}, [](context::fiber&& from) {
    scheduler = &from;
    (*body)();
    threads[current].state = State::over;
    return std::move(*scheduler);
  });
}

/// Runs the warp's fibers until all have ended or reached the block's barrier; returns how many ended.
int run_warp(std::size_t first, std::size_t end) {
  int ended = 0;
  for (;;) {
    bool exchanging = false, elsewhere = false;
    for (std::size_t t = first; t < end; ++t) {
      Thread& thread = threads[t];
      if (thread.state == State::ready) {
        current = t;
        thread_index = thread.index;
        thread.fiber = std::move(thread.fiber).resume();
        if (thread.state == State::over) ++ended;
      }
      (thread.state == State::awaits_warp ? exchanging : elsewhere) = true;
    }
    if (!exchanging) return ended;
    if (elsewhere)
      refuse(fmt::format("lanes of warp {} exchange values, but other lanes do not take part", first / lanes));
    for (std::size_t t = first; t < end; ++t) threads[t].state = State::ready;
  }
}

void run_block(std::size_t count) {
  for (std::size_t t = 0; t < count; ++t) {
    threads[t].index = {static_cast<unsigned>(t % block_size.x),
                        static_cast<unsigned>(t / block_size.x % block_size.y),
                        static_cast<unsigned>(t / block_size.x / block_size.y)};
    begin(threads[t]);
  }
  const std::size_t warp_count = warps.size();
  std::size_t ended = 0;
  while (ended < count) {
    const std::size_t first = next_chance() % warp_count;
    for (std::size_t w = 0; w < warp_count; ++w) {
      const std::size_t begin = (first + w) % warp_count * lanes;
      ended += static_cast<std::size_t>(run_warp(begin, std::min(count, begin + lanes)));
    }
    // As on GPUs, a thread that has ended counts as waiting at the barrier.
    for (std::size_t t = 0; t < count; ++t) {
      if (threads[t].state == State::awaits_block) threads[t].state = State::ready;
    }
  }
}

}  // namespace

OnlyLastBlocks::OnlyLastBlocks(unsigned across) { max_blocks_across = across; }
OnlyLastBlocks::~OnlyLastBlocks() { max_blocks_across = UINT_MAX; }

int lane() { return static_cast<int>(current % lanes); }

bool allow_shared_memory(const void* address, std::size_t bytes) {
  if (bytes > max_shared_bytes) return false;
  shared_bytes_allowed[address] = bytes;
  return true;
}

void launch(const char* name, const void* address, dim3 grid, dim3 block, std::size_t shared_bytes,
            const std::function<void()>& kernel) {
  kernel_name = name;
  body = &kernel;
  block_index = {};
  block_size = block;
  grid_size = grid;
  const std::size_t count = std::size_t{block.x} * block.y * block.z;
  constexpr unsigned max_across = 65535, max_in_block = 1024, deepest = 64;
  if (block.x > max_in_block || block.y > max_in_block || block.z > deepest || count < 1 || count > max_in_block ||
      grid.x < 1 || grid.x > INT_MAX || grid.y < 1 || grid.z < 1 || grid.y > max_across || grid.z > max_across) {
    refuse(fmt::format("no GPU supports {} × {} × {} blocks of {} × {} × {} threads", grid.x, grid.y, grid.z,
                       block.x, block.y, block.z));
  }
  const auto allowed = shared_bytes_allowed.find(address);
  const std::size_t most = allowed == shared_bytes_allowed.end() ? shared_bytes_at_first : allowed->second;
  if (shared_bytes > std::max(most, shared_bytes_at_first)) {
    refuse(fmt::format("{} bytes of shared memory, but cudaFuncSetAttribute allowed {}", shared_bytes, most));
  }
  if (threads.size() < count) threads.resize(count);
  warps.resize((count + lanes - 1) / lanes);
  for (Warp& warp : warps) {
    for (std::size_t turn = 0; turn < 2; ++turn) {
      for (std::size_t l = 0; l < lanes; ++l) warp.places[turn][l] = warp.values[turn][l];
    }
  }
  const unsigned first = grid.x - std::min(grid.x, max_blocks_across);
  for (block_index.z = 0; block_index.z < grid.z; ++block_index.z) {
    for (block_index.y = 0; block_index.y < grid.y; ++block_index.y) {
      for (block_index.x = first; block_index.x < grid.x; ++block_index.x) {
        shared.assign(shared_bytes + shared_alignment, std::byte{0xff});
        run_block(count);
      }
    }
  }
}

void synchronize_block() { suspend(State::awaits_block); }

std::byte* block_memory() {
  void* place = shared.data();
  std::size_t bytes = shared.size();
  return static_cast<std::byte*>(std::align(shared_alignment, bytes - shared_alignment, place, bytes));
}

const Exchanged& exchange(const void* value, std::size_t bytes) {
  Thread& thread = threads[current];
  Warp& warp = warps[current / lanes];
  const std::size_t turn = thread.second_turn ? 1 : 0;
  thread.second_turn = !thread.second_turn;
  std::memcpy(warp.values[turn][current % lanes], value, bytes);
  suspend(State::awaits_warp);
  return warp.places[turn];
}

void copy_later(void* to, const void* from, std::size_t bytes) {
  if (reinterpret_cast<std::uintptr_t>(to) % bytes != 0 || reinterpret_cast<std::uintptr_t>(from) % bytes != 0) {
    refuse(fmt::format("a copy of {} bytes is not aligned to its size", bytes));
  }
  const Copy copy{to, from, bytes};
  if (next_chance() % 2 == 0) return perform(copy);
  threads[current].copies.push_back(copy);
}

void end_copy_group() { threads[current].group_ends.push_back(threads[current].copies.size()); }

void wait_for_copies(int groups) {
  std::vector<Copy>& copies = threads[current].copies;
  std::vector<std::size_t>& ends = threads[current].group_ends;
  if (ends.size() <= static_cast<std::size_t>(groups)) return;
  const auto over = ends.end() - groups;
  const auto count = static_cast<std::ptrdiff_t>(*(over - 1));
  std::for_each(copies.begin(), copies.begin() + count, perform);
  copies.erase(copies.begin(), copies.begin() + count);
  ends.erase(ends.begin(), over);
  for (std::size_t& end : ends) end -= static_cast<std::size_t>(count);
}

}  // namespace ranvier::emulation
