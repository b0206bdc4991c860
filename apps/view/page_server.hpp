// HTTP server (GET and HEAD) on its own low-priority thread. Number of connections, request size, time and buffered
// responses are bounded, so slow or hostile clients do no harm; connections beyond the bounds are closed.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace ranvier::apps {

struct PageRequest {
  std::string_view path;           ///< "/status", not decoded
  std::string_view query;          ///< "points=800&first=1"; empty: none
  std::string_view host;           ///< Host header; empty: none
  std::string_view authorization;  ///< Authorization header; empty: none
  bool may_wait = true;            ///< whether the response may be deferred (long poll)
};

struct PageResponse {
  int status = 200;
  std::string_view type = "text/plain; charset=utf-8";  ///< string literal
  std::shared_ptr<const std::string> body;              ///< null: deferred, if the request may wait
};

class PageServer {
 public:
  struct Options {
    std::string address = "127.0.0.1";                 ///< an IP address of this machine; 0.0.0.0 or :: for all
    std::uint16_t port = 0;                            ///< 0: any free port
    std::size_t connections = 256;                     ///< maximum number of open connections
    std::size_t header_bytes = 8192;                   ///< maximum size of a request
    std::size_t unsent_bytes = std::size_t{64} << 20;  ///< maximum of unsent response bytes over all connections
    std::chrono::milliseconds request_time{10'000};    ///< from connection or response to a complete request
    std::chrono::milliseconds answer_time{30'000};     ///< for the client to receive a response
    std::chrono::milliseconds wait_time{20'000};       ///< maximum duration of a long poll
  };
  using Answer = std::function<PageResponse(const PageRequest&)>;

  /// Starts listening. `answer` is called on the server's thread, one call at a time. A deferred request calls it again
  /// after each wake() and at its time limit. Throws ErrorCode::usage or ::io; messages begin with `flag`: "--serve
  /// 8080".
  PageServer(const std::string& flag, Options options, Answer answer);
  ~PageServer();
  PageServer(const PageServer&) = delete;
  PageServer& operator=(const PageServer&) = delete;

  [[nodiscard]] std::uint16_t port() const noexcept;
  // Callable from any thread.
  /// Calls `answer` again for all deferred requests.
  void wake();
  /// Deferred requests and responses not yet received by clients.
  [[nodiscard]] std::size_t open_requests() const noexcept;
  [[nodiscard]] std::size_t open_connections() const noexcept;
  /// Connections closed at once because the limit was reached.
  [[nodiscard]] std::size_t refused_connections() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ranvier::apps
