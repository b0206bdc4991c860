// Answers HTTP requests for a page on a thread of its own, whatever comes: browsers, scanners, clients that are slow,
// silent, or many. Connections, what they may send, how long they may take and what is kept for them are bounded; a
// connection beyond that is closed. Reads only: GET and HEAD. The thread yields to all others that compute.
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
  std::string_view path;           ///< "/status", as it was sent
  std::string_view query;          ///< "points=800&first=1"; empty: none
  std::string_view host;           ///< of the header; empty: none
  std::string_view authorization;  ///< likewise
  bool may_wait = true;            ///< whether an answer may come later
};

struct PageResponse {
  int status = 200;
  std::string_view type = "text/plain; charset=utf-8";  ///< lives as long as the program
  std::shared_ptr<const std::string> body;              ///< null: later, if the request may wait
};

class PageServer {
 public:
  struct Options {
    std::string address = "127.0.0.1";                 ///< an IP address of this machine; 0.0.0.0 or :: for all
    std::uint16_t port = 0;                            ///< 0: any that is free
    std::size_t connections = 256;                     ///< at a time
    std::size_t header_bytes = 8192;                   ///< of a request
    std::size_t unsent_bytes = std::size_t{64} << 20;  ///< of answers, of all connections together
    std::chrono::milliseconds request_time{10'000};    ///< from an answer, or the connection, to a whole request
    std::chrono::milliseconds answer_time{30'000};     ///< for the client to take it
    std::chrono::milliseconds wait_time{20'000};       ///< for which a request waits at most
  };
  using Answer = std::function<PageResponse(const PageRequest&)>;

  /// Listens from here on. `answer` is called on the server's thread, one call at a time; for a request that waits
  /// again after each wake(), and at the end of its time. Throws ErrorCode::usage or ::io with what is wrong and
  /// what to do, beginning with `flag`: "--serve 8080".
  PageServer(const std::string& flag, Options options, Answer answer);
  ~PageServer();
  PageServer(const PageServer&) = delete;
  PageServer& operator=(const PageServer&) = delete;

  [[nodiscard]] std::uint16_t port() const noexcept;
  // Any thread.
  /// There is news for those that wait.
  void wake();
  /// Requests that wait, or whose answers are not taken yet.
  [[nodiscard]] std::size_t open_requests() const noexcept;
  [[nodiscard]] std::size_t open_connections() const noexcept;
  /// Connections that were closed at once, as there were as many as may be.
  [[nodiscard]] std::size_t refused_connections() const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ranvier::apps
