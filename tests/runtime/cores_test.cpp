#include "runtime/host/cores.hpp"
#include "tests/test.hpp"

using namespace ranvier::runtime;
using ranvier::tests::TemporaryFolder;

namespace {

constexpr int none = std::numeric_limits<int>::max();

cpu_set_t mask_of(std::initializer_list<int> cores) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  for (const int core : cores) CPU_SET(core, &mask);
  return mask;
}

}  // namespace

TEST_CASE("cores that several processes may use are divided among them") {
  const std::array bound = {mask_of({0, 1}), mask_of({2, 3, 4})};
  CHECK(core_share(bound, 0, none) == 2);
  CHECK(core_share(bound, 1, none) == 3);
  const std::array shared = {mask_of({0, 1, 2, 3}), mask_of({0, 1, 2, 3}), mask_of({0, 1, 2, 3})};
  for (std::size_t process = 0; process < shared.size(); ++process) CHECK(core_share(shared, process, none) == 1);
  const std::array pairs = {mask_of({0, 1}), mask_of({0, 1}), mask_of({2, 3})};
  CHECK(core_share(pairs, 0, none) == 1);
  CHECK(core_share(pairs, 2, none) == 2);
  const std::array crowded = {mask_of({0}), mask_of({0}), mask_of({0})};
  CHECK(core_share(crowded, 0, none) == 1);
}

TEST_CASE("a quota of the control group is divided among all processes") {
  const std::array shared = {mask_of({0, 1, 2, 3, 4, 5, 6, 7}), mask_of({0, 1, 2, 3, 4, 5, 6, 7})};
  CHECK(core_share(shared, 0, none) == 4);
  CHECK(core_share(shared, 0, 6) == 3);
  CHECK(core_share(shared, 0, 1) == 1);
}

TEST_CASE("quotas are read from the control groups of either version, and the tightest one applies") {
  const TemporaryFolder folder;
  CHECK(core_quota(folder.path()) == none);
  folder.write("proc/self/cgroup", "0::/slice/job\n");
  folder.write("sys/fs/cgroup/slice/job/cpu.max", "max 100000\n");
  CHECK(core_quota(folder.path()) == none);
  folder.write("sys/fs/cgroup/slice/cpu.max", "350000 100000\n");
  CHECK(core_quota(folder.path()) == 3);
  folder.write("sys/fs/cgroup/slice/job/cpu.max", "50000 100000\n");
  CHECK(core_quota(folder.path()) == 1);
  folder.write("proc/self/cgroup", "4:cpu,cpuacct:/job\n1:name=systemd:/\n");
  folder.write("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "200000\n");
  folder.write("sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
  folder.write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  folder.write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  CHECK(core_quota(folder.path()) == 2);
}

TEST_CASE("this process has at least one core") { CHECK(available_cores() >= 1); }
