#include "tests/apps/job.hpp"
#include "tests/test.hpp"

#include <csignal>
#include <stdexcept>
#include <system_error>
#include <thread>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

namespace ranvier::tests {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto poll_interval = 10ms;
constexpr const char* mark_variable = "RANVIER_TEST_JOB";

[[noreturn]] void fail_errno(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (auto& string : strings) result.push_back(string.data());
  result.push_back(nullptr);
  return result;
}

template <typename Condition>
bool wait_until(Condition&& condition, std::chrono::duration<double> limit) {
  const auto end = Clock::now() + limit;
  while (!condition()) {
    if (Clock::now() > end) return false;
    std::this_thread::sleep_for(poll_interval);
  }
  return true;
}

void append(std::vector<std::string>& to, const Flags& flags) {
  to.insert(to.end(), {"--oversubscribe", "--bind-to", "none", RANVIER_PROGRAM});
  to.insert(to.end(), flags.begin(), flags.end());
}

}  // namespace

Job::Job(int ranks, const Flags& flags, const Environment& environment) : Job({}, ranks, flags, environment) {}

Job::Job(const std::vector<std::string>& through, int ranks, const Flags& flags, const Environment& environment) {
  std::vector<std::string> command = through;
  command.insert(command.end(), {"mpirun", "-n", std::to_string(ranks)});
  append(command, flags);
  start(command, environment);
}

Job::Job(const std::vector<Flags>& flags_by_rank, const Environment& environment) {
  std::vector<std::string> command{"mpirun"};
  for (const auto& flags : flags_by_rank) {
    if (command.size() > 1) command.push_back(":");
    command.insert(command.end(), {"-n", "1"});
    append(command, flags);
  }
  start(command, environment);
}

void Job::start(const std::vector<std::string>& command, const Environment& environment) {
  mark_ = std::string(mark_variable) + "=" + folder_.path().string();
  std::vector<std::string> variables{mark_, "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"};
  for (const auto& [name, value] : environment) variables.push_back(name + "=" + value);
  const auto is_given = [&](const std::string& variable) {
    return std::any_of(environment.begin(), environment.end(),
                       [&](const auto& each) { return variable.starts_with(each.first + "="); });
  };
  for (char** variable = environ; *variable != nullptr; ++variable)
    if (!is_given(*variable)) variables.emplace_back(*variable);
  std::vector<std::string> arguments = command;
  auto argv = pointers(arguments);
  auto envp = pointers(variables);
  const std::string output = output_path();

  begin_ = Clock::now();
  launcher_ = fork();
  if (launcher_ < 0) fail_errno("fork");
  if (launcher_ > 0) return;
  const int out = open(output.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  const int in = open("/dev/null", O_RDONLY);
  if (out < 0 || in < 0 || dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0) _exit(126);
  setpgid(0, 0);
  execvpe(argv[0], argv.data(), envp.data());
  _exit(127);
}

Job::~Job() {
  if (launcher_ > 0) wait(0s);
}

Outcome Job::wait(std::chrono::duration<double> limit) {
  Outcome outcome;
  int status = 0;
  const auto ended = [&] { return waitpid(launcher_, &status, WNOHANG) == launcher_; };
  outcome.timed_out = !wait_until(ended, limit);
  outcome.seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
  if (outcome.timed_out) {
    for (int rank = 0; rank_process(rank) > 0; ++rank) signal_rank(rank, SIGKILL);
    signal_launcher(SIGKILL);
    waitpid(launcher_, &status, 0);
  }
  launcher_ = -1;
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  outcome.output = read_file(output_path());
  return outcome;
}

bool Job::wait_for_lines(const std::string& path, int count, std::chrono::duration<double> limit) const {
  return wait_until([&] { return static_cast<int>(lines_of(read_file(path)).size()) >= count; }, limit);
}

void Job::wait_until_said(const std::string& words) const {
  wait_until([&] { return has_said(words); }, 60s);
}

bool Job::has_said(const std::string& words) const {
  return read_file(output_path()).find(words) != std::string::npos;
}

std::string Job::said() const { return read_file(output_path()); }

void Job::signal_launcher(int signal) const { kill(launcher_, signal); }

void Job::signal_rank(int rank, int signal) const {
  const pid_t process = rank_process(rank);
  if (process <= 0) throw std::runtime_error("rank " + std::to_string(rank) + " is not running");
  kill(process, signal);
}

void Job::limit_files(int rank, std::size_t bytes) const {
  const rlimit limit{bytes, bytes};
  if (prlimit(rank_process(rank), RLIMIT_FSIZE, &limit, nullptr) != 0) fail_errno("prlimit");
}

bool Job::signal_rank_if_there(int rank, int signal) const {
  const pid_t process = rank_process(rank);
  return process > 0 && kill(process, signal) == 0;
}

pid_t Job::rank_process(int rank) const {
  const std::string rank_variable = "OMPI_COMM_WORLD_RANK=" + std::to_string(rank);
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::istringstream variables(read_file("/proc/" + name + "/environ"));
    bool marked = false;
    bool ranked = false;
    for (std::string variable; std::getline(variables, variable, '\0');) {
      marked |= variable == mark_;
      ranked |= variable == rank_variable;
    }
    if (marked && ranked) return std::stoi(name);
  }
  return -1;
}

Outcome run(int ranks, const Flags& flags, std::chrono::duration<double> limit, const Environment& environment) {
  return Job(ranks, flags, environment).wait(limit);
}

Outcome require_status(int status, Outcome outcome) {
  INFO(outcome.output);
  REQUIRE(outcome.status == status);
  return outcome;
}

void check_output(int status, Outcome outcome, std::initializer_list<std::string_view> words) {
  check_has(require_status(status, std::move(outcome)).output, words);
}

Outcome require_failure(Outcome outcome) {
  INFO(outcome.output);
  REQUIRE_FALSE(outcome.timed_out);
  REQUIRE(outcome.status != 0);
  return outcome;
}

std::vector<std::string> errors_of(const Outcome& outcome) {
  std::vector<std::string> lines = lines_of(outcome.output);
  std::erase_if(lines, [](const std::string& line) { return !line.starts_with("ranvier-train: error: "); });
  return lines;
}

}  // namespace ranvier::tests
