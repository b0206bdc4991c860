// Headless Chromium, controlled by its DevTools protocol over a pipe. One thread.
//
//   if (!Browser::is_there()) return;
//   Browser browser(folder);
//   browser.open("http://127.0.0.1:8080/");
//   CHECK(browser.value("document.title") == "Ranvier");
#pragma once

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>

#include <sys/types.h>

#include <string>
#include <vector>

namespace ranvier::tests {

class Browser {
 public:
  [[nodiscard]] static bool is_there();

  /// Stores its data in `folder`.
  explicit Browser(const std::string& folder);
  ~Browser();
  Browser(const Browser&) = delete;
  Browser& operator=(const Browser&) = delete;

  /// Returns when the page and its resources are loaded; its scripts continue.
  void open(const std::string& address);
  /// Value of a JavaScript expression on the page.
  boost::json::value value(const std::string& expression);
  /// Whether an expression became true within a minute.
  bool becomes_true(const std::string& expression);
  /// Width and height in pixels, in a light or dark theme; `media`: "screen" or "print".
  void look_like(int width, int height, bool dark = false, const char* media = "screen");
  /// With the left button, in CSS pixels of the page; the same place: a click.
  void drag(double from_x, double from_y, double to_x, double to_y);
  void save_screenshot(const std::string& path);
  /// Exceptions of its scripts since it was opened.
  [[nodiscard]] const std::vector<std::string>& exceptions() const { return exceptions_; }

 private:
  boost::json::object ask(const std::string& method, boost::json::object parameters = {});
  boost::json::object hear();

  pid_t process_ = -1;
  int requests_ = -1, answers_ = -1;
  int last_id_ = 0;
  std::string session_;  // identifies the page
  std::string rest_;     // data received after the last message
  std::vector<std::string> exceptions_;
};

}  // namespace ranvier::tests
