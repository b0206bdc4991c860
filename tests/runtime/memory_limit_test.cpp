#include "runtime/device/memory_limit.hpp"
#include "tests/test.hpp"

using ranvier::runtime::memory_limit;
using ranvier::tests::TemporaryFolder;

namespace {

constexpr std::size_t MiB = 1 << 20;

/// A machine of 1 GiB, half of it available, without swap.
struct Machine {
  TemporaryFolder folder;

  Machine() {
    folder.write("proc/meminfo",
                 "MemTotal:  1048576 kB\nMemFree:  1000 kB\nMemAvailable:  524288 kB\nSwapFree:  0 kB\n");
  }
};

}  // namespace

TEST_CASE_FIXTURE(Machine, "without control groups the limit is the machine's available memory plus its swap") {
  CHECK(memory_limit(folder.path()).bytes == 512 * MiB);
  CHECK(memory_limit(folder.path()).reason == "the machine has 1.0 GiB, of which 512.0 MiB are available");
  folder.write("proc/meminfo", "MemTotal:  1048576 kB\nMemAvailable:  524288 kB\nSwapFree:  1024 kB\n");
  CHECK(memory_limit(folder.path()).bytes == 513 * MiB);
}

TEST_CASE_FIXTURE(Machine, "a control group of version 2 limits memory, and so do its ancestors") {
  folder.write("proc/self/cgroup", "0::/jobs/job\n");
  folder.write("sys/fs/cgroup/jobs/job/memory.max", "max\n");
  CHECK(memory_limit(folder.path()).bytes == 512 * MiB);
  folder.write("sys/fs/cgroup/jobs/memory.max", std::to_string(100 * MiB) + "\n");
  folder.write("sys/fs/cgroup/jobs/memory.current", std::to_string(50 * MiB) + "\n");
  folder.write("sys/fs/cgroup/jobs/memory.stat",
               "anon 1\ninactive_file " + std::to_string(20 * MiB) + "\nactive_file 0\n");
  const auto limit = memory_limit(folder.path());
  CHECK(limit.bytes == 70 * MiB);
  CHECK(limit.reason == "the control group /jobs may have 100.0 MiB (memory.max), of which 30.0 MiB are in use");
}

TEST_CASE_FIXTURE(Machine,
                  "a control group of version 1 limits memory, also if its path outside the container differs") {
  folder.write("proc/self/cgroup", "5:cpu,cpuacct:/\n4:hugetlb,memory:/docker/0123\n0::/\n");
  folder.write("sys/fs/cgroup/memory/memory.limit_in_bytes", std::to_string(64 * MiB) + "\n");
  folder.write("sys/fs/cgroup/memory/memory.usage_in_bytes", std::to_string(65 * MiB) + "\n");
  CHECK(memory_limit(folder.path()).bytes == 0);
  folder.write("sys/fs/cgroup/memory/memory.stat",
               "cache 1\ntotal_inactive_file " + std::to_string(2 * MiB) + "\n");
  CHECK(memory_limit(folder.path()).bytes == 1 * MiB);
}

TEST_CASE("without readable information there is no limit") {
  const TemporaryFolder empty;
  CHECK(memory_limit(empty.path()).bytes > (std::size_t{1} << 60));
}
