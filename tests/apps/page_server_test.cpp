// A page's server over real sockets: responses to good clients, and treatment of the others.
#include "apps/view/page_server.hpp"

#include "apps/view/serve_address.hpp"
#include "tests/apps/http_client.hpp"

#include <atomic>
#include <thread>

using namespace ranvier;
using namespace ranvier::tests;
using namespace std::chrono_literals;
using apps::PageRequest;
using apps::PageResponse;
using apps::PageServer;

namespace {

PageResponse text(std::string body) { return {.body = std::make_shared<const std::string>(std::move(body))}; }

PageResponse echo(const PageRequest& request) {
  return text(std::string(request.path) + "|" + std::string(request.query));
}

/// Waits until `condition` holds; returns whether it did in time.
template <typename Condition>
bool comes_true(Condition&& condition) {
  for (int i = 0; i < 2000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(5ms);
  }
  return false;
}

constexpr std::size_t large_bytes = std::size_t{9} << 20;  // larger than the buffers of two sockets

}  // namespace

TEST_CASE("the page server answers consecutive requests on a connection, without content for HEAD") {
  PageServer server("--serve 0", {}, echo);
  HttpClient client(server.port());
  const auto first = client.get("/status?a=1&b=2");
  CHECK(first.status == 200);
  CHECK(first.body == "/status|a=1&b=2");
  check_has(first.header, {"Cache-Control: no-store", "default-src 'none'"});
  CHECK(client.get("/").body == "/|");
  client.send("HEAD /x HTTP/1.1\r\nHost: localhost\r\n\r\n");
  const auto head = client.answer(false);
  check_has(head.header, {"Content-Length: 3\r\n"});
  CHECK(client.get("/next").body == "/next|");
  client.send("GET / HTTP/1.0\r\n\r\n");  // which marks the last request
  CHECK(client.answer().status == 200);
  CHECK(client.receive().empty());
}

TEST_CASE("the page server refuses invalid or unsupported requests, and closes the connection") {
  PageServer server("--serve 0", {}, echo);
  const auto status_of = [&](const std::string& request) {
    HttpClient client(server.port());
    client.send(request);
    const int status = client.answer().status;
    CHECK(client.receive().empty());
    return status;
  };
  CHECK(status_of("GET / HTTP/1.1\r\nX: " + std::string(9000, 'x') + "\r\n\r\n") == 431);
  CHECK(status_of("\x16\x03\x01\x02 TLS, say\r\n\r\n") == 400);
  CHECK(status_of("POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\nab") == 405);
  CHECK(status_of("DELETE /status HTTP/1.1\r\n\r\n") == 405);
  CHECK(status_of("GET / HTTP/1.1\r\nContent-Length: 5000000000\r\n\r\n") == 413);
  CHECK(status_of("GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n") == 413);
  CHECK(http_get(server.port(), "/").status == 200);
}

TEST_CASE("an error while a response is created is sent as a response, and does not end the server") {
  PageServer server("--serve 0", {}, [](const PageRequest& request) -> PageResponse {
    if (request.path == "/bad") throw std::bad_alloc();
    return echo(request);
  });
  CHECK(http_get(server.port(), "/bad").status == 500);
  CHECK(http_get(server.port(), "/good").status == 200);
}

TEST_CASE("200 connections are served at a time, and those beyond a limit are closed at once") {
  PageServer server("--serve 0", {.connections = 200, .request_time = 10min}, echo);
  std::vector<HttpClient> clients;
  for (int i = 0; i < 200; ++i) clients.emplace_back(server.port());
  for (auto& client : clients) client.send("GET /all HTTP/1.1\r\n\r\n");
  for (auto& client : clients) CHECK(client.answer().body == "/all|");
  CHECK(server.open_connections() == 200);
  HttpClient beyond(server.port());
  CHECK(beyond.receive().empty());
  CHECK(server.refused_connections() == 1);
  clients.pop_back();
  REQUIRE(comes_true([&] { return server.open_connections() == 199; }));
  CHECK(http_get(server.port(), "/again").status == 200);
}

TEST_CASE("a client that sends nothing, or too slowly, is disconnected after its time") {
  PageServer server("--serve 0", {.request_time = 300ms}, echo);
  HttpClient silent(server.port()), half(server.port()), slow(server.port());
  half.send("GET / HT");
  bool gone = false;
  for (int i = 0; i < 2000 && !gone; ++i) {  // each byte comes in time, the request does not
    gone = !slow.send("G");
    std::this_thread::sleep_for(20ms);
  }
  CHECK(gone);
  CHECK(silent.receive().empty());
  CHECK(half.receive().empty());
  CHECK(comes_true([&] { return server.open_connections() == 0; }));
}

TEST_CASE("a client that does not read its response delays no other, and is disconnected after its time") {
  const auto large = std::make_shared<const std::string>(large_bytes, 'x');
  std::atomic<int> asked = 0;
  const auto answer = [&](const PageRequest& request) {
    if (request.path != "/large") return echo(request);
    ++asked;
    return PageResponse{.body = large};
  };
  {
    PageServer server("--serve 0", {.unsent_bytes = 2 * large_bytes, .answer_time = 10min}, answer);
    HttpClient first(server.port(), 4096), second(server.port(), 4096);
    for (HttpClient* slow : {&first, &second}) slow->send("GET /large HTTP/1.1\r\n\r\n");
    REQUIRE(comes_true([&] { return large.use_count() == 3; }));
    // Unread responses count, and leave no capacity.
    CHECK(http_get(server.port(), "/large").status == 503);
    CHECK(http_get(server.port(), "/small").status == 503);
  }
  asked = 0;
  PageServer brief("--serve 0", {.unsent_bytes = large_bytes + 100, .answer_time = 300ms}, answer);
  HttpClient slow(brief.port(), 4096);
  slow.send("GET /large HTTP/1.1\r\n\r\n");
  REQUIRE(comes_true([&] { return asked == 1 && brief.open_connections() == 0; }));
  CHECK(http_get(brief.port(), "/small").status == 200);
  PageServer patient("--serve 0", {.answer_time = 10min}, answer);
  CHECK(http_get(patient.port(), "/large").body.size() == large_bytes);
}

TEST_CASE("a page server that is stopped with connected clients ends") {
  std::vector<HttpClient> clients;
  {
    const auto large = std::make_shared<const std::string>(large_bytes, 'x');
    PageServer server("--serve 0", {}, [&](const PageRequest&) { return PageResponse{.body = large}; });
    for (int i = 0; i < 4; ++i) clients.emplace_back(server.port(), 4096);
    clients[0].send("GET / HTTP/1.1\r\n\r\n");
    clients[1].send("GET / HT");
    REQUIRE(comes_true([&] { return server.open_connections() == 4; }));
  }
  CHECK(clients[3].receive().empty());
}

TEST_CASE("a waiting request is answered when there is news, or after its time, and delays no other") {
  std::atomic<int> asked = 0;
  std::atomic<bool> news = false;
  const auto answer = [&](const PageRequest& request) {
    if (request.path != "/news") return echo(request);
    ++asked;
    if (news) return text("news");
    return request.may_wait ? PageResponse() : text("none");
  };
  PageServer server("--serve 0", {.wait_time = 10min}, answer);
  HttpClient first(server.port()), second(server.port());
  for (HttpClient* client : {&first, &second}) client->send("GET /news HTTP/1.1\r\n\r\n");
  REQUIRE(comes_true([&] { return asked == 2; }));
  CHECK(http_get(server.port(), "/other").body == "/other|");
  CHECK(comes_true([&] { return server.open_requests() == 2; }));
  server.wake();  // for other requests
  REQUIRE(comes_true([&] { return asked == 4; }));
  CHECK(server.open_requests() == 2);
  news = true;
  server.wake();
  CHECK(first.answer().body == "news");
  CHECK(second.answer().body == "news");
  CHECK(comes_true([&] { return server.open_requests() == 0; }));
  CHECK(first.get("/again").body == "/again|");
  {
    news = false;
    HttpClient gone(server.port());
    gone.send("GET /news HTTP/1.1\r\n\r\n");
    REQUIRE(comes_true([&] { return server.open_requests() == 1; }));
  }
  server.wake();  // a disconnected client may still count as waiting
  PageServer brief("--serve 0", {.wait_time = 50ms}, answer);
  HttpClient patient(brief.port());
  CHECK(patient.get("/news").body == "none");
  CHECK(patient.get("/news").body == "none");
  CHECK(comes_true([&] { return brief.open_requests() == 0; }));
}

TEST_CASE("a page server that cannot listen reports the reason and a remedy") {
  PageServer first("--serve 0", {}, echo);
  const auto refusal = [](const PageServer::Options& options) {
    const Error error = error_of([&] { PageServer server("--serve X", options, echo); });
    CHECK(error.code() == ErrorCode::usage);
    return std::string(error.what());
  };
  check_has(refusal({.port = first.port()}), {"is in use; use another port, or 0"});
  check_has(refusal({.address = "192.0.2.7", .port = 8080}), {"does not have address 192.0.2.7"});
  check_has(refusal({.address = "nowhere"}), {"--serve X: not an IP address: nowhere"});
}

TEST_CASE("--serve takes a port, or an IP address and a port") {
  const auto parsed = [](std::string_view text) {
    const auto address = apps::parse_serve_address(text);
    return address ? address->address + " " + std::to_string(address->port) : std::string("none");
  };
  CHECK(parsed("8080") == "127.0.0.1 8080");
  CHECK(parsed("0.0.0.0:80") == "0.0.0.0 80");
  CHECK(parsed("localhost:0") == "127.0.0.1 0");
  CHECK(parsed("[::1]:8080") == "::1 8080");
  for (const char* bad :
       {"", ":", "x", "65536", "-1", "80a", "host:80", "::1:8080", "[::1]", "[127.0.0.1]:80", "1.2.3:80"})
    CHECK(parsed(bad) == "none");
  CHECK(apps::ServeAddress{.address = "127.0.0.9"}.is_local());
  CHECK(apps::ServeAddress{.address = "::1"}.is_local());
  CHECK(!apps::ServeAddress{.address = "0.0.0.0"}.is_local());
}

TEST_CASE("a run's page is for this machine's own names, or for clients with the token") {
  const apps::LiveRun run;
  const auto status = [&](std::string_view token, const PageRequest& request) {
    return apps::answer_about(run, token, request).status;
  };
  for (const char* host : {"localhost", "localhost:8080", "127.0.0.1:1", "[::1]:8080", "127.3.2.1"})
    CHECK(status("", {.path = "/status", .host = host}) == 200);
  // A page of another site whose name was made to resolve to this machine.
  for (const char* host :
       {"", "evil.example", "evil.example:8080", "10.0.0.1:80", "localhost.evil.example", "[::2]:1"})
    CHECK(status("", {.path = "/status", .host = host}) == 403);
  const std::string token = apps::random_token();
  CHECK(token.size() == 32);
  CHECK(token != apps::random_token());
  CHECK(status(token, {.path = "/", .query = "token=" + token, .host = "node7:80"}) == 200);
  CHECK(status(token, {.path = "/", .query = "points=3&token=" + token + "&x=1"}) == 200);
  CHECK(status(token, {.path = "/metrics", .authorization = "Bearer " + token}) == 200);
  std::string wrong = token;
  wrong.back() = wrong.back() == '0' ? '1' : '0';
  for (const std::string& query :
       std::vector<std::string>{"", "token=", "token=" + wrong, "token=" + token + "0", "xtoken=" + token})
    CHECK(status(token, {.path = "/status", .query = query, .host = "localhost"}) == 403);
  CHECK(status(token, {.path = "/", .authorization = "Bearer " + wrong}) == 403);
  CHECK(status(token, {.path = "/", .authorization = token}) == 403);
  CHECK(status("", {.path = "/etc/passwd", .host = "localhost"}) == 404);
}
