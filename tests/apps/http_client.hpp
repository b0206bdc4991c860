// A plain HTTP client, which can also misbehave. One thread.
#pragma once

#include "tests/test.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

namespace ranvier::tests {

class HttpClient {
 public:
  /// Connects to this machine. `receive_bytes`: size of the socket's receive buffer; 0: the system's default.
  explicit HttpClient(std::uint16_t port, int receive_bytes = 0) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    REQUIRE(socket_ >= 0);
    if (receive_bytes > 0) ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
    const timeval patience{.tv_sec = 20, .tv_usec = 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  }
  ~HttpClient() {
    if (socket_ >= 0) ::close(socket_);
  }
  HttpClient(HttpClient&& other) noexcept
      : socket_(std::exchange(other.socket_, -1)), rest_(std::move(other.rest_)) {}
  HttpClient& operator=(HttpClient&&) = delete;

  /// False if the server has closed the connection.
  bool send(const std::string& text) {
    return ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
  }
  /// Returns the received data, waiting for some; empty: the server has closed the connection.
  std::string receive() {
    std::array<char, 65536> some;
    const ssize_t bytes = ::recv(socket_, some.data(), some.size(), 0);
    return bytes > 0 ? std::string(some.data(), static_cast<std::size_t>(bytes)) : std::string();
  }

  struct Answer {
    int status = 0;  ///< 0: no response
    std::string header, body;
  };
  /// One complete response; without its content if the request asked for none.
  Answer answer(bool with_body = true) {
    while (rest_.find("\r\n\r\n") == std::string::npos) {
      const std::string more = receive();
      if (more.empty()) return {};
      rest_ += more;
    }
    Answer result;
    const std::size_t end = rest_.find("\r\n\r\n") + 4;
    result.header = rest_.substr(0, end);
    rest_.erase(0, end);
    result.status = std::atoi(result.header.c_str() + result.header.find(' '));
    const std::size_t length = result.header.find("Content-Length: ");
    REQUIRE(length != std::string::npos);
    const auto bytes = static_cast<std::size_t>(std::atoll(result.header.c_str() + length + 16));
    if (!with_body) return result;
    while (rest_.size() < bytes) {
      const std::string more = receive();
      if (more.empty()) return {};
      rest_ += more;
    }
    result.body = rest_.substr(0, bytes);
    rest_.erase(0, bytes);
    return result;
  }
  Answer get(const std::string& target, const std::string& more_headers = {}) {
    send("GET " + target + " HTTP/1.1\r\nHost: localhost\r\n" + more_headers + "\r\n");
    return answer();
  }

 private:
  int socket_;
  std::string rest_;  // data received after the last response
};

/// On a separate connection.
inline HttpClient::Answer http_get(std::uint16_t port, const std::string& target) {
  return HttpClient(port).get(target);
}

}  // namespace ranvier::tests
