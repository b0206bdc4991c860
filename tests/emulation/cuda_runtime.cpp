// The functions of CUDA's runtime that device_cuda.cpp and the operations call, over host memory: one GPU whose work is
// done when the call returns. The linker prefers these to the static library's.
//
// RANVIER_EMULATED_GPU changes the GPU, or removes it:
//
//   no-gpu        the driver finds none
//   no-driver     the driver is missing
//   old-driver    the driver is for an older CUDA
//   memory=N      N bytes of memory
//   name=NAME     another name
//   volta         compute capability 7.0; volta=R: on rank R of MPI only
//   fail=R:N      the Nth kernel of MPI rank R makes an illegal access; a wait reports it, later calls fail
#include "tests/emulation/stream.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace {

using Graph = std::vector<std::function<void()>>;
struct EmulatedStream {
  bool is_captured = false;
  Graph graph;
};
EmulatedStream& behind(cudaStream_t stream) { return *reinterpret_cast<EmulatedStream*>(stream); }

struct Streams {
  std::mutex mutex;
  std::unordered_set<cudaStream_t> alive;
};
Streams& streams() {
  static auto* all = new Streams;
  return *all;
}

thread_local bool captures = false;

/// Ends the program: during a capture a GPU refuses this call, or the graph would not include it.
void not_captured(bool is_captured, const char* call) {
  if (!is_captured) return;
  std::fputs(fmt::format("{} during the capture of a stream\n", call).c_str(), stderr);
  std::abort();
}

struct Machine {
  cudaError_t count_answer = cudaSuccess;
  int driver_version = CUDART_VERSION;
  std::size_t memory_bytes = std::size_t{1} << 34;
  long long failing_kernel = -1;
  std::string name = "emulated";
  int capability = 80;  ///< times ten
};

long long number(std::string_view text) { return std::atoll(std::string(text).c_str()); }

long long rank() {
  const char* given = std::getenv("OMPI_COMM_WORLD_RANK");
  return number(given == nullptr ? "0" : given);
}

Machine described_machine() {
  Machine machine;
  const char* given = std::getenv("RANVIER_EMULATED_GPU");
  const std::string_view text = given == nullptr ? "" : given;
  const std::size_t equals = text.find('=');
  const std::string_view kind = text.substr(0, equals);
  const std::string_view value = equals == std::string_view::npos ? "" : text.substr(equals + 1);
  if (kind == "no-gpu") {
    machine.count_answer = cudaErrorNoDevice;
  } else if (kind == "no-driver" || kind == "old-driver") {
    machine.count_answer = cudaErrorInsufficientDriver;
    machine.driver_version = kind == "no-driver" ? 0 : 11080;
  } else if (kind == "memory") {
    machine.memory_bytes = static_cast<std::size_t>(number(value));
  } else if (kind == "name") {
    machine.name = value;
  } else if (kind == "volta" && (value.empty() || number(value) == rank())) {
    machine.capability = 70;
  } else if (kind == "fail") {
    const std::size_t colon = value.find(':');
    if (rank() == number(value.substr(0, colon))) machine.failing_kernel = number(value.substr(colon + 1));
  }
  return machine;
}
const Machine& machine() {
  static const Machine described = described_machine();
  return described;
}

/// Number of kernels and copies; the failure, and whether a wait has reported it.
std::atomic<long long> works{0};
std::atomic<bool> has_failed{false}, is_known{false};
cudaError_t health() { return is_known ? cudaErrorIllegalAddress : cudaSuccess; }

constexpr std::size_t page_bytes = 4096, guard_bytes = 4096;
constexpr unsigned char guard = 0xa5;

/// Sizes of allocated arrays, and registered host memory, by its first byte.
struct Sizes {
  std::mutex mutex;
  std::unordered_map<void*, std::size_t> of;
  std::unordered_set<void*> registered;
};
Sizes& sizes() {
  static auto* all = new Sizes;  // buffers with static storage duration are freed after any destructor
  return *all;
}

cudaError_t take(void** place, std::size_t bytes) {
  not_captured(captures, "memory is allocated");
  if (is_known) return health();
  if (bytes > machine().memory_bytes) return cudaErrorMemoryAllocation;
  const std::size_t whole = (bytes + guard_bytes + page_bytes - 1) / page_bytes * page_bytes;
  *place = std::aligned_alloc(page_bytes, whole);
  if (*place == nullptr) return cudaErrorMemoryAllocation;
  // New memory has no defined contents; filling the middle of a large array takes too much time.
  const std::size_t end_bytes = std::min(bytes, std::size_t{8} << 20);
  std::memset(*place, 0xff, end_bytes);
  std::memset(static_cast<char*>(*place) + bytes - end_bytes, 0xff, end_bytes);
  std::memset(static_cast<char*>(*place) + bytes, guard, guard_bytes);
  const std::lock_guard lock(sizes().mutex);
  sizes().of[*place] = bytes;
  return cudaSuccess;
}

/// Detects writes of kernels past the end of an array.
cudaError_t give_back(void* place) {
  if (place == nullptr) return cudaSuccess;
  not_captured(captures, "memory is freed");
  if (is_known) return health();
  const std::lock_guard lock(sizes().mutex);
  const auto found = sizes().of.find(place);
  if (found == sizes().of.end()) return cudaErrorInvalidValue;
  const auto* behind = static_cast<const unsigned char*>(place) + found->second;
  for (std::size_t i = 0; i < guard_bytes; ++i) {
    if (behind[i] == guard) continue;
    std::fputs(
        fmt::format("a kernel wrote byte {} past the end of an array of {} bytes\n", i, found->second).c_str(),
        stderr);
    std::abort();
  }
  sizes().of.erase(found);
  std::free(place);
  return cudaSuccess;
}

using Clock = std::chrono::steady_clock;
struct Recorded {
  Clock::time_point time;
  bool after_failure = false;
  bool was_asked_for = false;
};
ranvier::emulation::WatchedCopies* watched_copies = nullptr;
thread_local cudaError_t last_error = cudaSuccess;  // returned by cudaGetLastError(), once
Recorded& recorded(cudaEvent_t event) { return *reinterpret_cast<Recorded*>(event); }
cudaError_t learn(cudaEvent_t event) {
  if (recorded(event).after_failure) is_known = true;
  return health();
}

}  // namespace

namespace ranvier::emulation {

WatchedCopies::WatchedCopies() { watched_copies = this; }
WatchedCopies::~WatchedCopies() { watched_copies = nullptr; }

void queue(cudaStream_t stream, std::function<void()> work) {
  if (stream != nullptr && behind(stream).is_captured) return behind(stream).graph.push_back(std::move(work));
  if (++works == machine().failing_kernel) has_failed = true;
  if (!has_failed) work();
}

void break_gpu() { has_failed = is_known = true; }

bool is_alive(cudaStream_t stream) {
  const std::lock_guard lock(streams().mutex);
  return stream == nullptr || streams().alive.contains(stream);
}

}  // namespace ranvier::emulation

using ranvier::emulation::queue;

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = machine().count_answer == cudaSuccess ? 1 : 0;
  return machine().count_answer;
}
cudaError_t cudaGetDevice(int* ordinal) { return *ordinal = 0, cudaSuccess; }
cudaError_t cudaSetDevice(int ordinal) { return ordinal == 0 ? cudaSuccess : cudaErrorInvalidDevice; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  std::strncpy(properties->name, machine().name.c_str(), sizeof properties->name - 1);
  properties->major = machine().capability / 10;
  properties->minor = machine().capability % 10;
  properties->multiProcessorCount = 3;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) { return *version = machine().driver_version, cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int* version) { return *version = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaGetLastError() {
  const cudaError_t last = std::exchange(last_error, cudaSuccess);
  return health() != cudaSuccess ? health() : last;
}
const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaErrorIllegalAddress ? "cudaErrorIllegalAddress" : "an error of the emulated GPU";
}
const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorIllegalAddress ? "an illegal memory access was encountered"
                                          : "an error of the emulated GPU";
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  return *free = *total = machine().memory_bytes, cudaSuccess;
}
cudaError_t cudaMalloc(void** place, std::size_t bytes) { return take(place, bytes); }
cudaError_t cudaFree(void* place) { return give_back(place); }
cudaError_t cudaHostAlloc(void** place, std::size_t bytes, unsigned) { return take(place, bytes); }
cudaError_t cudaFreeHost(void* place) { return give_back(place); }
cudaError_t cudaHostRegister(void* place, std::size_t, unsigned) {
  const std::lock_guard lock(sizes().mutex);
  return sizes().registered.insert(place).second ? cudaSuccess : cudaErrorHostMemoryAlreadyRegistered;
}
cudaError_t cudaHostUnregister(void* place) {
  const std::lock_guard lock(sizes().mutex);
  return sizes().registered.erase(place) == 1 ? cudaSuccess : cudaErrorHostMemoryNotRegistered;
}
cudaError_t cudaHostGetDevicePointer(void** seen, void* place, unsigned) { return *seen = place, cudaSuccess; }
cudaError_t cudaMemset(void* to, int value, std::size_t bytes) {
  return std::memset(to, value, bytes), cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  return queue(stream, [=] { std::memset(to, value, bytes); }), health();
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  const auto copy = [=] {
    std::memmove(to, from, bytes);
    if (watched_copies != nullptr) watched_copies->done.push_back({to, bytes});
  };
  return queue(stream, copy), health();
}

cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_stride, const void* from, std::size_t from_stride,
                              std::size_t run, std::size_t runs, cudaMemcpyKind, cudaStream_t stream) {
  const auto copy = [=] {
    for (std::size_t r = 0; r < runs; ++r) {
      std::byte* const place = static_cast<std::byte*>(to) + r * to_stride;
      std::memmove(place, static_cast<const std::byte*>(from) + r * from_stride, run);
      if (watched_copies != nullptr) watched_copies->done.push_back({place, run});
    }
  };
  return queue(stream, copy), health();
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* lowest, int* highest) {
  return *lowest = 0, *highest = -1, cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int) {
  *stream = reinterpret_cast<cudaStream_t>(new EmulatedStream);
  const std::lock_guard lock(streams().mutex);
  streams().alive.insert(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const std::lock_guard lock(streams().mutex);
  streams().alive.erase(stream);
  return delete &behind(stream), cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) {
  return not_captured(captures, "a stream is waited for"), health();
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t, unsigned) {
  return not_captured(behind(stream).is_captured, "an event is waited for"), health();
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  not_captured(captures, "another capture begins");
  captures = behind(stream).is_captured = true;
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  const bool is_captured = stream != nullptr && behind(stream).is_captured;
  return *status = is_captured ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone, health();
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  captures = behind(stream).is_captured = false;
  *graph = reinterpret_cast<cudaGraph_t>(new Graph(std::exchange(behind(stream).graph, {})));
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return delete reinterpret_cast<Graph*>(graph), cudaSuccess; }
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long) {
  *made = reinterpret_cast<cudaGraphExec_t>(new Graph(*reinterpret_cast<Graph*>(graph)));
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  return delete reinterpret_cast<Graph*>(graph), cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  for (const auto& work : *reinterpret_cast<Graph*>(graph)) queue(stream, work);
  return health();
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = reinterpret_cast<cudaEvent_t>(new Recorded);
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, cudaEventDefault); }
cudaError_t cudaEventDestroy(cudaEvent_t event) { return delete &recorded(event), cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  not_captured(stream != nullptr && behind(stream).is_captured, "an event is recorded");
  recorded(event) = {.time = Clock::now(), .after_failure = has_failed};
  return health();
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  *milliseconds = std::chrono::duration<float, std::milli>(recorded(end).time - recorded(begin).time).count();
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  not_captured(captures, "an event is asked for");
  if (std::exchange(recorded(event).was_asked_for, true)) return learn(event);
  return last_error = cudaErrorNotReady;  // the first time, as if it took a while
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) { return learn(event); }
}
