// The emulated cluster of run.sh: which ranks share memory, which bytes cross which link, and that nothing is left
// behind. Exits with 77, ctest's "skipped", if the machine does not allow network namespaces.
#include "actors/states/sharded_unit.hpp"
#include "models/families/gpt.hpp"
#include "tests/test.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <net/if.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>

using namespace ranvier;
using namespace ranvier::tests;
using namespace std::chrono_literals;

namespace {

struct Outcome {
  int status = 0;
  std::string output;
};

/// Runs a shell command until it ends.
Outcome shell(const std::string& command) {
  const auto [status, text] = output_of_command(command + " 2>&1");
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), text};
}

Outcome cluster(const std::string& arguments) { return shell(RANVIER_CLUSTER " --timeout 120 " + arguments); }

/// Values of each `"key": ` of a JSON text, up to the next comma, brace or line end.
std::vector<std::string> values(const std::string& text, const std::string& key) {
  std::vector<std::string> found;
  const std::string mark = '"' + key + "\":";
  for (std::size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at + 1)) {
    const std::size_t begin = text.find_first_not_of(" \"", at + mark.size());
    found.push_back(text.substr(begin, text.find_first_of(",}\"\n", begin) - begin));
  }
  return found;
}

struct Link {
  double in = 0;
  double out = 0;
};

/// Bytes of each link of a counters file, under keys such as "host0 between".
std::map<std::string, Link> links(const std::string& counters) {
  const auto names = values(counters, "name"), kinds = values(counters, "link");
  const auto in = values(counters, "bytes_in"), out = values(counters, "bytes_out");
  std::map<std::string, Link> result;
  for (std::size_t i = 0; i < names.size(); ++i) {
    result[names[i] + ' ' + kinds.at(i)] = {std::stod(in.at(i)), std::stod(out.at(i))};
  }
  return result;
}

/// Runs ranvier_move_bytes; returns the links' bytes, and in `nodes` which ranks share memory.
std::map<std::string, Link> moved(const std::string& flags, const std::string& moves,
                                  std::string* nodes = nullptr) {
  const TemporaryFolder folder;
  const std::string file = (folder.path() / "counters.json").string();
  const Outcome run = cluster(fmt::format("{} --counters {} -- {} {}", flags, file, RANVIER_MOVE_BYTES, moves));
  CAPTURE(run.output);
  REQUIRE(run.status == 0);
  MESSAGE(flags << ", " << moves << ": " << run.output);  // the time is printed, not checked
  if (nodes) {
    const std::size_t begin = run.output.find("[[");
    *nodes = run.output.substr(begin, run.output.find("]]") + 2 - begin);
  }
  return links(folder.read("counters.json"));
}

constexpr double mebibyte = 1024 * 1024;

/// Payload, plus at most 3 % for headers and acknowledgements.
void check_payload(double counted, double payload) {
  CHECK(counted >= payload);
  CHECK(counted <= 1.03 * payload);
}

/// MPI's messages at startup and shutdown, and the acknowledgements of received data.
constexpr double small_talk = 0.02 * 16 * mebibyte;

std::set<std::string> interfaces() {
  std::set<std::string> names;
  struct if_nameindex* all = ::if_nameindex();
  for (const struct if_nameindex* i = all; i && i->if_index != 0; ++i) names.insert(i->if_name);
  ::if_freenameindex(all);
  return names;
}

/// True if a process is in one of these network namespaces, named "net:[4026531840]".
bool inhabited(const std::set<std::string>& namespaces) {
  for (const auto& process : std::filesystem::directory_iterator("/proc")) {
    std::error_code gone;
    const auto place = std::filesystem::read_symlink(process.path() / "ns" / "net", gone);
    if (!gone && namespaces.contains(place.string())) return true;
  }
  return false;
}

/// The namespaces that `readlink /proc/self/ns/net` of the ranks printed.
std::set<std::string> namespaces_in(const std::string& output) {
  std::set<std::string> found;
  for (std::size_t at = output.find("net:["); at != std::string::npos; at = output.find("net:[", at + 1)) {
    found.insert(output.substr(at, output.find(']', at) + 1 - at));
  }
  return found;
}

/// Runs run.sh in the background with ranks that sleep, and its output in a file.
class SleepingCluster {
 public:
  SleepingCluster() : output_((folder_.path() / "output").string()) {
    process_ = ::fork();
    REQUIRE(process_ >= 0);
    if (process_ == 0) {
      ::dup2(::open(output_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600), STDOUT_FILENO);
      ::execl(RANVIER_CLUSTER, RANVIER_CLUSTER, "--timeout", "100", "--", "sh", "-c",
              "readlink /proc/self/ns/net; sleep 100", nullptr);
      ::_exit(127);
    }
    for (int i = 0; i < 600 && namespaces_in(folder_.read("output")).size() < 2; ++i)
      std::this_thread::sleep_for(50ms);
    namespaces = namespaces_in(folder_.read("output"));
  }
  /// Sends the signal and waits.
  void end(int signal) const {
    ::kill(process_, signal);
    int status = 0;
    ::waitpid(process_, &status, 0);
  }

  std::set<std::string> namespaces;

 private:
  TemporaryFolder folder_;
  std::string output_;
  pid_t process_ = -1;
};

}  // namespace

TEST_CASE("ranks of one host share memory, ranks of different hosts do not") {
  std::string nodes;
  moved("--hosts 2 --ranks-per-host 2", "", &nodes);
  CHECK(nodes == "[[0, 1], [2, 3]]");
  moved("--hosts 3 --ranks-per-host 1", "", &nodes);
  CHECK(nodes == "[[0], [1], [2]]");
}

TEST_CASE("bytes between two hosts are counted on these hosts' links, separately in each direction") {
  const auto link = moved("--hosts 2 --ranks-per-host 2 --rate 400mbit",
                          fmt::format("0:2:{0:.0f} 1:3:{0:.0f} 3:0:{0:.0f}", 16 * mebibyte));
  REQUIRE(link.size() == 2);
  check_payload(link.at("host0 between").out, 2 * 16 * mebibyte);
  check_payload(link.at("host0 between").in, 16 * mebibyte);
  CHECK(link.at("host1 between").in == link.at("host0 between").out);
  CHECK(link.at("host1 between").out == link.at("host0 between").in);

  const auto three =
      moved("--hosts 3 --ranks-per-host 1 --rate 400mbit", fmt::format("0:1:{0:.0f} 0:2:{0:.0f}", 16 * mebibyte));
  REQUIRE(three.size() == 3);
  check_payload(three.at("host0 between").out, 2 * 16 * mebibyte);
  CHECK(three.at("host0 between").in < small_talk);
  for (const auto* host : {"host1 between", "host2 between"}) {
    check_payload(three.at(host).in, 16 * mebibyte);
    CHECK(three.at(host).out < small_talk);
  }
}

TEST_CASE("bytes within a host cross no link") {
  const auto link =
      moved("--hosts 2 --ranks-per-host 2 --rate 1mbit", fmt::format("0:1:{0:.0f} 3:2:{0:.0f}", 64 * mebibyte));
  REQUIRE(link.size() == 2);
  for (const auto& [name, bytes] : link) {
    CAPTURE(name);
    CHECK(bytes.in < 16384);  // MPI's barriers
    CHECK(bytes.out < 16384);
  }
}

TEST_CASE("ranks with separate links use one inside their host and another between hosts") {
  std::string nodes;
  const auto link = moved("--hosts 2 --ranks-per-host 2 --rate 400mbit --rank-rate 800mbit",
                          fmt::format("0:1:{0:.0f} 1:2:{1:.0f}", 16 * mebibyte, 8 * mebibyte), &nodes);
  CHECK(nodes == "[[0], [1], [2], [3]]");
  REQUIRE(link.size() == 8);
  check_payload(link.at("rank0 inside").out, 16 * mebibyte);
  check_payload(link.at("rank1 inside").in, 16 * mebibyte);
  check_payload(link.at("rank1 between").out, 8 * mebibyte);
  check_payload(link.at("rank2 between").in, 8 * mebibyte);
  CHECK(link.at("rank0 between").out < small_talk);
  CHECK(link.at("rank1 between").in < small_talk);
  CHECK(link.at("rank2 inside").in < small_talk);
  CHECK(link.at("rank3 between").in < small_talk);
}

TEST_CASE("a failing program's status is passed on, and its hosts are removed") {
  const auto before = interfaces();
  // All have started before one fails: the launcher ends the others immediately.
  const TemporaryFolder folder;
  const Outcome run =
      cluster(fmt::format("-- sh -c 'readlink /proc/self/ns/net >{0}/new$OMPI_COMM_WORLD_RANK; "
                          "mv {0}/new$OMPI_COMM_WORLD_RANK {0}/$OMPI_COMM_WORLD_RANK; "
                          "until [ `ls {0} | grep -vc new` = $OMPI_COMM_WORLD_SIZE ]; do sleep 0.05; done; exit 3'",
                          folder.path().string()));
  CHECK(run.status == 3);
  const auto namespaces = namespaces_in(shell(fmt::format("cat {0}/*", folder.path().string())).output);
  CHECK(namespaces.size() == 2);
  CHECK_FALSE(inhabited(namespaces));
  CHECK(interfaces() == before);
  CHECK(cluster("-- " RANVIER_MOVE_BYTES " 0:9:1").status == 1);
}

TEST_CASE("a program that hangs is ended at its timeout, and its hosts are removed") {
  const Outcome run = cluster("--timeout 2 -- sh -c 'readlink /proc/self/ns/net; sleep 100'");
  CHECK(run.status == 124);
  CHECK(has(run.output, "did not end within 2 s"));
  const auto namespaces = namespaces_in(run.output);
  CHECK(namespaces.size() == 2);
  CHECK_FALSE(inhabited(namespaces));
}

TEST_CASE("SIGTERM, SIGINT and even SIGKILL of the script end all of its processes") {
  for (const int signal : {SIGTERM, SIGINT, SIGKILL}) {
    CAPTURE(signal);
    const auto before = interfaces();
    SleepingCluster sleeping;
    REQUIRE(sleeping.namespaces.size() == 2);
    CHECK(inhabited(sleeping.namespaces));
    sleeping.end(signal);
    if (signal == SIGKILL) {  // no process is left to wait
      for (int i = 0; i < 100 && inhabited(sleeping.namespaces); ++i) std::this_thread::sleep_for(50ms);
    }
    CHECK_FALSE(inhabited(sleeping.namespaces));
    CHECK(interfaces() == before);
  }
}

TEST_CASE("two clusters that run at once are separate") {
  const SleepingCluster other;
  REQUIRE(other.namespaces.size() == 2);
  std::string nodes;
  moved("--hosts 2 --ranks-per-host 1", "0:1:1000", &nodes);
  CHECK(nodes == "[[0], [1]]");
  CHECK(inhabited(other.namespaces));
  other.end(SIGTERM);
}

TEST_CASE("a machine that does not allow namespaces skips, and prints the reason") {
  if (::geteuid() != 0) return;  // only root can drop its privileges
  const Outcome run = shell("setpriv --bounding-set -all --inh-caps -all " RANVIER_CLUSTER " -- true");
  CAPTURE(run.output);
  CHECK(run.status == 77);
  CHECK(has(run.output, "skipped: this machine does not allow network namespaces (unshare"));
}

TEST_CASE("invalid flags are refused with the flag and its accepted values") {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"--hosts 5 -- true", "--hosts is '5'; it takes a whole number from 1 to 4"},
      {"--rate fast -- true", "'fast' is not a rate; write 200mbit or 10gbit"},
      {"--speed 3 -- true", "unknown flag '--speed'"},
      {"--hosts 2", "the program is missing; add it after --"},
      {"--rate", "--rate lacks its value"},
  };
  for (const auto& [arguments, message] : cases) {
    const Outcome run = shell(RANVIER_CLUSTER " " + arguments);
    CAPTURE(run.output);
    CHECK(run.status == 2);
    CHECK(has(run.output, message));
  }
}

// The nodes determine which rank owns which piece, and with it the order of summation.
TEST_CASE("training gives the same bits on two hosts as on one host that counts as two") {
  const TemporaryFolder folder;
  const std::string text =
      folder.write("text.txt", shell("cat " RANVIER_SOURCES "/runtime/*.[ch]pp").output).string();
  for (const auto* grid : {"--g-data 4", "--g-inter 2 --g-data 2"}) {
    std::vector<std::vector<std::string>> losses, norms;
    for (const auto* hosts : {"--hosts 1 --ranks-per-host 4", "--hosts 2 --ranks-per-host 2 --rate 400mbit"}) {
      const std::string file = (folder.path() / "metrics.jsonl").string();
      const Outcome run = cluster(
          fmt::format("{} -- {} --data {} {} --layers 4 --hidden 64 --heads 4 --sequence-length 32 --batch-size 16 "
                      "--microbatch-size 2 --steps 5 --all-reduce ring --node-size 2 --metrics {}",
                      hosts, RANVIER_TRAIN, text, grid, file));
      CAPTURE(run.output);
      REQUIRE(run.status == 0);
      losses.push_back(values(folder.read("metrics.jsonl"), "loss"));
      norms.push_back(values(folder.read("metrics.jsonl"), "grad_norm"));
      std::filesystem::remove(file);
    }
    CAPTURE(std::string(grid));
    REQUIRE(losses[0].size() == 5);
    CHECK(losses[0].front() != losses[0].back());
    CHECK(losses[0] == losses[1]);
    CHECK(norms[0] == norms[1]);
  }
}

TEST_CASE("training between hosts sends the bytes that the papers derive") {
  const TemporaryFolder folder;
  const std::string text =
      folder.write("text.txt", shell("cat " RANVIER_SOURCES "/runtime/*.[ch]pp").output).string();
  models::GptOptions gpt{.layers = 4, .hidden = 256, .heads = 4, .vocab_size = 256, .sequence_length = 16};
  const auto architecture = models::make_gpt(gpt);
  double parameters = 0;
  for (const models::UnitSpec& unit : architecture.units()) {
    parameters += static_cast<double>(actors::padded_elements(unit, 4));
  }
  // Two microbatches of each of four rows, two hosts of two ranks: N = 4, g = 2, s = 2 (PaRO, Table 2; flat rings).
  const double s = 2, global = 2 * parameters * 3 / 4, across = parameters;
  const double int8 = 260.0 / 1024, int4 = 132.0 / 1024;  // bytes of a block of 256, divided by those in fp32
  struct Case {
    const char* flags;
    double elements;
    const char* algorithm = "ring";
  };
  const Case cases[] = {
      {"--shard ddp", 2 * global},
      {"--shard zero1", 2 * global},
      {"--shard zero2", (s + 1) * global},
      {"--shard zero3", 3 * s * global},
      {"--shard zero++", 2 * s * global},
      {"--shard mics", 2 * across},
      {"--shard paro-igg", (s + 1) * across},
      {"--shard paro-iig", 2 * across},
      {"--shard paro-nig", 2 * across},
      // A group that spans the hosts: (p - k)/p of the parameters leave each (MiCS §3.3).
      {"--shard mics --group-size 4", 3 * s * 2 * parameters * (4 - 2) / 4, "hierarchical"},
      // Sums in blocks go through groups (ZeRO++ §3.3).
      {"--shard zero3 --gather-dtype int8 --reduce-dtype int8", s * int8 * (2 * global + across)},
      {"--shard zero++ --gather-dtype inter=int8 --reduce-dtype inter=int4", s * (int8 * global + int4 * across)}};
  for (const Case& one : cases) {
    CAPTURE(std::string(one.flags));
    const auto counted = [&](int steps) {
      const std::string file = (folder.path() / "counters.json").string();
      const Outcome run = cluster(fmt::format(
          "--hosts 2 --ranks-per-host 2 --rate 10gbit --counters {} -- {} --data {} --g-data 4 --layers {} "
          "--hidden {} --heads {} --sequence-length {} --batch-size 8 --microbatch-size 1 --steps {} "
          "--validation-split 0 --all-reduce ring --all-gather {} --reduce-scatter {} --reuse off {}",
          file, RANVIER_TRAIN, text, gpt.layers, gpt.hidden, gpt.heads, gpt.sequence_length, steps, one.algorithm,
          one.algorithm, one.flags));
      CAPTURE(run.output);
      REQUIRE(run.status == 0);
      const auto link = links(folder.read("counters.json"));
      REQUIRE(link.size() == 2);
      return link.at("host0 between").out + link.at("host1 between").out;
    };
    const double bytes = (counted(4) - counted(1)) / 3;  // bytes per step, without the start and the end of a job
    MESSAGE(std::string(one.flags) << ": " << bytes / 1e6 << " MB per step, derived " << one.elements * 4 / 1e6);
    CHECK(bytes == doctest::Approx(one.elements * 4).epsilon(0.03));
  }
}

int main(int argc, char** argv) {
  doctest::Context context(argc, argv);
  const bool lists = std::any_of(argv, argv + argc, [](const char* argument) { return has(argument, "-list"); });
  if (!lists) {
    // Not output_of_command(), whose checks need a test case.
    const int status = std::system(RANVIER_CLUSTER " --check");
    if (status != 0) return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
  }
  return context.run();
}
