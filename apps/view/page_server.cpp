#include "apps/view/page_server.hpp"

#include "apps/program/flag_names.hpp"
#include "runtime/base/error.hpp"

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/status.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <exception>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

namespace ranvier::apps {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;

constexpr int min_favoured = 19;  // lowest thread priority (nice value)
constexpr auto last_words = std::chrono::seconds(1);
constexpr std::size_t max_drained = 64 << 10;  // bytes
constexpr std::string_view page_policy =
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

std::string_view view_of(beast::string_view text) { return {text.data(), text.size()}; }

PageResponse plain(http::status status, std::string text) {
  return {.status = static_cast<int>(status), .body = std::make_shared<const std::string>(std::move(text))};
}

}  // namespace

struct PageServer::State {
  struct Connection;

  State(const Options& given, Answer how) : options(given), answer(std::move(how)) {}

  void accept();
  void wake();

  Options options;
  Answer answer;
  std::uint16_t port = 0;
  std::size_t unsent = 0;
  std::atomic<std::size_t> open = 0, refused = 0, requests = 0;
  std::set<Connection*> waiting;
  asio::io_context context{1};  // declared after the counters that connections use
  tcp::acceptor acceptor{context};
  asio::steady_timer pause{context};
  std::thread thread;
};

/// Exists as long as one of its operations is pending. The server's thread only.
struct PageServer::State::Connection : std::enable_shared_from_this<Connection> {
  Connection(tcp::socket socket, State& of)
      : stream(std::move(socket)), state(of), buffer(of.options.header_bytes), patience(of.context) {
    ++state.open;
  }
  ~Connection() {
    --state.open;
    state.unsent -= sending;
    state.waiting.erase(this);
    if (asked) --state.requests;
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void read() {
    head = false;
    parser.emplace();
    parser->header_limit(static_cast<std::uint32_t>(state.options.header_bytes));
    stream.expires_after(state.options.request_time);
    http::async_read_header(
        stream, buffer, *parser,
        [self = shared_from_this()](const beast::error_code& error, std::size_t) { self->have_read(error); });
  }

  void have_read(const beast::error_code& error) {
    const auto refuse = [this](http::status status, const char* why) { write(plain(status, why), false); };
    if (error == http::error::header_limit || error == http::error::buffer_overflow)
      return refuse(http::status::request_header_fields_too_large, "the request's header is too large\n");
    if (error == http::error::body_limit)
      return refuse(http::status::payload_too_large, "the page takes no content\n");
    if (error && error.category() == http::make_error_code(http::error::bad_method).category() &&
        error != http::error::end_of_stream && error != http::error::partial_message)
      return refuse(http::status::bad_request, "not an HTTP request\n");
    if (error) return;  // disconnected or too slow
    const auto& request = parser->get();
    const bool is_head = request.method() == http::verb::head;
    if (!is_head && request.method() != http::verb::get)
      return refuse(http::status::method_not_allowed, "method not allowed; use GET or HEAD\n");
    if ((request.has_content_length() || request.chunked()) && parser->content_length_remaining().value_or(1) > 0)
      return refuse(http::status::payload_too_large, "the page takes no content\n");
    head = is_head;
    patience.expires_after(state.options.wait_time);
    answer(true);
  }

  void answer(bool may_wait) {
    const auto& request = parser->get();
    const std::string_view target = view_of(request.target());
    const std::size_t mark = std::min(target.find('?'), target.size());
    PageResponse given;
    try {
      given = state.answer({.path = target.substr(0, mark),
                            .query = target.substr(std::min(mark + 1, target.size())),
                            .host = view_of(request[http::field::host]),
                            .authorization = view_of(request[http::field::authorization]),
                            .may_wait = may_wait});
    } catch (const std::exception& failure) {  // a failure of the page must not end the run
      given = plain(http::status::internal_server_error, message_of(failure));
    }
    if (!given.body && may_wait) return wait();
    if (!given.body) given = plain(http::status::service_unavailable, "no data yet; try again\n");
    if (state.unsent + given.body->size() > state.options.unsent_bytes)
      given = plain(http::status::service_unavailable, "too many responses are pending; try again\n");
    write(std::move(given), request.keep_alive());
  }

  void wait() {
    count(true);
    state.waiting.insert(this);
    patience.async_wait([self = shared_from_this()](const beast::error_code& woken) {
      self->state.waiting.erase(self.get());
      self->answer(woken == asio::error::operation_aborted);
    });
  }

  /// Adds this request to the open ones, or removes it.
  void count(bool is_open) {
    if (asked == is_open) return;
    asked = is_open;
    is_open ? ++state.requests : --state.requests;
  }

  void write(PageResponse given, bool stays) {
    count(true);
    body = std::move(given.body);
    const std::string_view reason = view_of(http::obsolete_reason(static_cast<http::status>(given.status)));
    header = fmt::format(
        "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: {}\r\nCache-Control: no-store\r\n"
        "X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\nContent-Security-Policy: {}\r\n{}\r\n",
        given.status, reason, given.type, body->size(), stays ? "keep-alive" : "close", page_policy,
        given.status == 405 ? "Allow: GET, HEAD\r\n" : "");
    sending = body->size();
    state.unsent += sending;
    stream.expires_after(state.options.answer_time);
    const std::array<asio::const_buffer, 2> buffers{asio::buffer(header),
                                                    head ? asio::const_buffer() : asio::buffer(*body)};
    asio::async_write(stream, buffers,
                      [self = shared_from_this(), stays](const beast::error_code& error, std::size_t) {
                        self->have_written(error, stays);
                      });
  }

  void have_written(const beast::error_code& error, bool stays) {
    state.unsent -= std::exchange(sending, 0);
    body.reset();
    count(false);
    if (error) return;
    if (stays) return read();
    beast::error_code ignored;
    stream.socket().shutdown(tcp::socket::shutdown_send, ignored);
    stream.expires_after(last_words);
    drain(max_drained);
  }

  /// Reads remaining input: closing a connection with unread data may lose the response.
  void drain(std::size_t most) {
    stream.async_read_some(asio::buffer(dropped),
                           [self = shared_from_this(), most](const beast::error_code& error, std::size_t bytes) {
                             if (!error && bytes < most) self->drain(most - bytes);
                           });
  }

  beast::tcp_stream stream;
  State& state;
  beast::flat_buffer buffer;
  std::optional<http::request_parser<http::empty_body>> parser;
  std::string header;
  std::shared_ptr<const std::string> body;
  std::array<char, 1024> dropped;
  std::size_t sending = 0;
  asio::steady_timer patience;
  bool head = false, asked = false;
};

void PageServer::State::wake() {
  asio::post(context, [this] {
    for (Connection* const each : waiting) each->patience.cancel();  // the expiry time stays
  });
}

void PageServer::State::accept() {
  acceptor.async_accept([this](const beast::error_code& error, tcp::socket socket) {
    if (error == asio::error::operation_aborted) return;
    if (error) {  // for example, out of file descriptors
      pause.expires_after(std::chrono::milliseconds(100));
      return pause.async_wait([this](const beast::error_code& stopped) {
        if (!stopped) accept();
      });
    }
    accept();
    if (open < options.connections) {
      std::make_shared<Connection>(std::move(socket), *this)->read();
    } else {
      ++refused;  // the socket closes when the handler returns
    }
  });
}

namespace {

[[noreturn]] void refuse(const std::string& flag, const PageServer::Options& options,
                         const beast::error_code& error) {
  if (error == asio::error::address_in_use)
    fail(ErrorCode::usage, "{}: port {} of {} is in use; use another port, or 0 for any free port", flag,
         options.port, options.address);
  if (error == asio::error::access_denied)
    fail(ErrorCode::usage, "{}: ports below 1024 need privileges; use 1024 or above, or 0 for any free port", flag);
  if (error == boost::system::errc::address_not_available)
    fail(ErrorCode::usage,
         "{}: rank 0's machine does not have address {}; use an address of that machine, or 0.0.0.0:{} for all",
         flag, options.address, options.port);
  fail(ErrorCode::io, "{}: cannot listen: {}", flag, error.message());
}

}  // namespace

PageServer::PageServer(const std::string& flag, Options options, Answer answer)
    : state_(std::make_unique<State>(options, std::move(answer))) {
  beast::error_code error;
  const asio::ip::address address = asio::ip::make_address(options.address, error);
  if (error) fail(ErrorCode::usage, "{}: not an IP address: {}", flag, options.address);
  const tcp::endpoint endpoint(address, options.port);
  tcp::acceptor& acceptor = state_->acceptor;
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (!error) state_->port = acceptor.local_endpoint(error).port();
  if (error) refuse(flag, options, error);
  state_->accept();
  // The server's thread blocks all signals; other threads handle them.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  state_->thread = std::thread([state = state_.get()] {
    static_cast<void>(::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), min_favoured));
    for (;;) {
      try {
        state->context.run();
        return;
      } catch (const std::exception&) {  // failure of one connection, such as out of memory
      }
    }
  });
  pthread_setname_np(state_->thread.native_handle(), "page");
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

PageServer::~PageServer() {
  state_->context.stop();
  state_->thread.join();
}

std::uint16_t PageServer::port() const noexcept { return state_->port; }
void PageServer::wake() { state_->wake(); }
std::size_t PageServer::open_requests() const noexcept { return state_->requests; }
std::size_t PageServer::open_connections() const noexcept { return state_->open; }
std::size_t PageServer::refused_connections() const noexcept { return state_->refused; }

}  // namespace ranvier::apps
