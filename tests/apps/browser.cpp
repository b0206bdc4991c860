#include "tests/apps/browser.hpp"
#include "tests/test.hpp"

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>

namespace ranvier::tests {
namespace {

namespace json = boost::json;
using namespace std::chrono_literals;

constexpr int patience_ms = 60000;

std::string program() {
  for (const char* path : {"/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"})
    if (std::filesystem::exists(path)) return path;
  return {};
}

std::string from_base64(const std::string& text) {
  static constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  std::uint32_t bits = 0;
  int count = 0;
  for (const char letter : text) {
    const std::size_t digit = digits.find(letter);
    if (digit == std::string_view::npos) break;  // padding at the end
    bits = (bits << 6 | static_cast<std::uint32_t>(digit)) & 0xffffff;
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes += static_cast<char>(bits >> count & 0xff);
  }
  return bytes;
}

}  // namespace

bool Browser::is_there() { return !program().empty(); }

Browser::Browser(const std::string& folder) {
  // The pipe's ends must be 3 and 4 in the child.
  std::array<int, 2> to{}, from{};
  REQUIRE(::pipe2(to.data(), O_CLOEXEC) == 0);
  REQUIRE(::pipe2(from.data(), O_CLOEXEC) == 0);
  const std::string path = program(), data = "--user-data-dir=" + folder;
  process_ = ::fork();
  REQUIRE(process_ >= 0);
  if (process_ == 0) {
    // Moved to other numbers first, because either may be 3 or 4 already.
    const int in = ::fcntl(to[0], F_DUPFD, 10), out = ::fcntl(from[1], F_DUPFD, 10);
    const int nowhere = ::open("/dev/null", O_RDWR);
    if (in < 0 || out < 0 || nowhere < 0 || ::dup2(in, 3) < 0 || ::dup2(out, 4) < 0) ::_exit(126);
    for (const int file : {0, 1, 2}) ::dup2(nowhere, file);
    ::close(in);
    ::close(out);
    ::setpgid(0, 0);
    ::execl(path.c_str(), path.c_str(), "--headless=new", "--no-sandbox", "--disable-gpu",
            "--disable-dev-shm-usage", "--remote-debugging-pipe", data.c_str(), nullptr);
    ::_exit(127);
  }
  ::close(to[0]);
  ::close(from[1]);
  requests_ = to[1];
  answers_ = from[0];
  const json::object page = ask("Target.createTarget", {{"url", "about:blank"}});
  const json::object session = ask("Target.attachToTarget", {{"targetId", page.at("targetId")}, {"flatten", true}});
  session_ = session.at("sessionId").as_string();
  ask("Page.enable");
  ask("Runtime.enable");
}

Browser::~Browser() {
  ::close(requests_);
  ::close(answers_);
  ::kill(-process_, SIGKILL);
  ::waitpid(process_, nullptr, 0);
}

void Browser::open(const std::string& address) {
  exceptions_.clear();
  const json::object answer = ask("Page.navigate", {{"url", address}});
  REQUIRE_MESSAGE(!answer.contains("errorText"), address, ": ", json::serialize(answer));
  REQUIRE(becomes_true("document.readyState === 'complete' && location.href !== 'about:blank'"));
}

json::value Browser::value(const std::string& expression) {
  const json::object answer = ask("Runtime.evaluate", {{"expression", expression}, {"returnByValue", true}});
  REQUIRE_MESSAGE(!answer.contains("exceptionDetails"), json::serialize(answer));
  const json::object& result = answer.at("result").as_object();
  return result.contains("value") ? result.at("value") : json::value();
}

bool Browser::becomes_true(const std::string& expression) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(patience_ms);
  while (value(expression) != json::value(true)) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(50ms);
  }
  return true;
}

void Browser::look_like(int width, int height, bool dark, const char* media) {
  ask("Emulation.setDeviceMetricsOverride",
      {{"width", width}, {"height", height}, {"deviceScaleFactor", 1}, {"mobile", false}});
  ask("Emulation.setEmulatedMedia", {{"media", media},
                                     {"features", json::array{json::object{{"name", "prefers-color-scheme"},
                                                                           {"value", dark ? "dark" : "light"}}}}});
}

void Browser::drag(double from_x, double from_y, double to_x, double to_y) {
  const auto mouse = [this](const char* type, double x, double y, bool pressed) {
    ask("Input.dispatchMouseEvent",
        {{"type", type}, {"x", x}, {"y", y}, {"button", "left"}, {"buttons", pressed ? 1 : 0}, {"clickCount", 1}});
  };
  mouse("mousePressed", from_x, from_y, true);
  if (from_x != to_x || from_y != to_y) mouse("mouseMoved", to_x, to_y, true);
  mouse("mouseReleased", to_x, to_y, false);
}

void Browser::save_screenshot(const std::string& path) {
  const std::string image = from_base64(ask("Page.captureScreenshot").at("data").as_string().c_str());
  std::ofstream file(path, std::ios::binary);
  file.write(image.data(), static_cast<std::streamsize>(image.size()));
  REQUIRE_MESSAGE(file.flush(), path);
}

json::object Browser::ask(const std::string& method, json::object parameters) {
  json::object request{{"id", ++last_id_}, {"method", method}, {"params", std::move(parameters)}};
  if (!session_.empty()) request["sessionId"] = session_;
  const std::string text = json::serialize(request);
  for (std::size_t written = 0; written <= text.size();) {  // with the terminating zero
    const ssize_t bytes = ::write(requests_, text.c_str() + written, text.size() + 1 - written);
    REQUIRE(bytes > 0);
    written += static_cast<std::size_t>(bytes);
  }
  while (true) {
    json::object message = hear();
    if (const json::value* id = message.if_contains("id"); id != nullptr && *id == last_id_) {
      REQUIRE_MESSAGE(message.contains("result"), method, ": ", json::serialize(message));
      return message.at("result").as_object();
    }
    if (const json::value* event = message.if_contains("method");
        event != nullptr && *event == "Runtime.exceptionThrown")
      exceptions_.push_back(json::serialize(message.at("params")));
  }
}

json::object Browser::hear() {
  std::size_t end = 0;
  while ((end = rest_.find('\0')) == std::string::npos) {
    pollfd ready{.fd = answers_, .events = POLLIN, .revents = 0};
    REQUIRE_MESSAGE(::poll(&ready, 1, patience_ms) == 1, "the browser does not reply");
    std::array<char, 65536> some;
    const ssize_t bytes = ::read(answers_, some.data(), some.size());
    REQUIRE_MESSAGE(bytes > 0, "the browser has ended");
    rest_.append(some.data(), static_cast<std::size_t>(bytes));
  }
  json::object message = json::parse(rest_.substr(0, end)).as_object();
  rest_.erase(0, end + 1);
  return message;
}

}  // namespace ranvier::tests
