// SPDX-License-Identifier: Apache-2.0
// HTTP over real sockets on the loopback interface: framing, limits, disconnects, slow clients,
// stopping. The handler is a small one of the test's own; what the API answers is tested elsewhere.
#include "server/http_server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace pagewise::server {
namespace {

/// A blocking client socket. Reads give up after ten seconds, so that no test hangs.
class Client {
 public:
  explicit Client(uint16_t port) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    const timeval limit{10, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  }
  ~Client() { close(); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  void shut_sending() { ::shutdown(fd_, SHUT_WR); }
  /// False when the server closed its end.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }
  /// Reads until `text` has been seen (returned with everything before it), or the end.
  std::string read_until(std::string_view text) {
    while (true) {
      const std::size_t found = buffer_.find(text);
      if (found != std::string::npos) {
        std::string out = buffer_.substr(0, found + text.size());
        buffer_.erase(0, found + text.size());
        return out;
      }
      char piece[4096];
      const ssize_t got = recv(fd_, piece, sizeof piece, 0);
      if (got <= 0) return std::exchange(buffer_, {});
      buffer_.append(piece, static_cast<std::size_t>(got));
    }
  }
  /// The next so many bytes; fewer at the end.
  std::string read(std::size_t bytes) {
    std::string out = buffer_.substr(0, bytes);
    buffer_.erase(0, out.size());
    char piece[1 << 16];
    while (out.size() < bytes) {
      const ssize_t got = recv(fd_, piece, std::min(sizeof piece, bytes - out.size()), 0);
      if (got <= 0) break;
      out.append(piece, static_cast<std::size_t>(got));
    }
    return out;
  }
  /// Whether nothing more comes because the server ended the connection.
  bool has_ended() {
    char byte;
    const ssize_t got = recv(fd_, &byte, 1, 0);
    return got == 0 || (got < 0 && errno == ECONNRESET);
  }
  std::string read_all() { return read_until(std::string(1, '\0') + "never"); }

 private:
  int fd_;
  std::string buffer_;
};

std::string post(std::string_view path, std::string_view body, std::string_view more = "") {
  return fmt::format("POST {} HTTP/1.1\r\nhost: x\r\n{}content-length: {}\r\n\r\n{}", path, more,
                     body.size(), body);
}

/// Streams pieces as the test gives them out; knows whether it was cancelled.
struct StreamState {
  std::mutex mutex;
  std::function<void()> wake;
  std::string pending;
  bool finish = false;
  TimeNs beat_ns = 0;  // if not 0: after so long a silence it says "beat" unasked
  std::atomic<bool> started{false}, cancelled{false}, shut_down{false};

  void beat_every(TimeNs ns) {
    std::lock_guard lock(mutex);
    beat_ns = ns;
  }
  void say(std::string text, bool last = false) {
    std::lock_guard lock(mutex);
    pending += text;
    finish = finish || last;
    if (wake) wake();
  }
};

class TestStream final : public Exchange {
 public:
  explicit TestStream(std::shared_ptr<StreamState> state) : state_(std::move(state)) {}
  ~TestStream() override {
    std::lock_guard lock(state_->mutex);
    state_->wake = nullptr;
  }
  void start(std::function<void()> wake) override {
    {
      std::lock_guard lock(state_->mutex);
      state_->wake = std::move(wake);
    }
    state_->started = true;
  }
  Progress poll(TimeNs now) override {
    std::lock_guard lock(state_->mutex);
    Progress progress;
    if (!head_sent_) progress.head = HttpResponse{200, "text/event-stream", {}, ""};
    const bool silent = head_sent_ && state_->pending.empty();
    if (silent && state_->beat_ns != 0 && now - last_at_ >= state_->beat_ns) {
      state_->pending = "beat";
    }
    if (!silent || !state_->pending.empty()) last_at_ = now;
    head_sent_ = true;
    progress.bytes = std::exchange(state_->pending, {});
    progress.done = state_->finish || state_->shut_down;
    if (state_->beat_ns != 0) progress.look_again_at = last_at_ + state_->beat_ns;
    return progress;
  }
  void cancel() override { state_->cancelled = true; }
  void shut_down() override { state_->shut_down = true; }

 private:
  std::shared_ptr<StreamState> state_;
  bool head_sent_ = false;
  TimeNs last_at_ = 0;  // when it said something
};

/// More than the socket buffers take; no two stretches of it are equal, so that bytes which are
/// sent twice or left out show.
const std::string& large_text() {
  static const std::string text = [] {
    std::string out(40'000'000, '\0');
    for (uint32_t i = 0; i < out.size(); i += sizeof i) std::memcpy(out.data() + i, &i, sizeof i);
    return out;
  }();
  return text;
}

class TestHandler final : public Handler {
 public:
  std::optional<HttpResponse> begin(HttpRequest& request) override {
    if (request.path == "/refused") return HttpResponse{401, "text/plain", {}, "no"};
    return std::nullopt;
  }
  Outcome handle(HttpRequest&& request) override {
    if (request.path == "/stream") return std::make_unique<TestStream>(stream);
    if (request.path == "/throw") throw std::runtime_error("third party");
    if (request.path == "/large") return HttpResponse{200, "text/plain", {}, large_text()};
    return HttpResponse{200,
                        "text/plain",
                        {},
                        fmt::format("{} {} {}", request.method, request.path,
                                    request.body.size() > 100 ? "long" : request.body)};
  }
  HttpResponse read_failed(const HttpRequest&, ReadFailure failure) override {
    switch (failure) {
      case ReadFailure::kBodyTooLarge:
        return {413, "text/plain", {}, "too large"};
      case ReadFailure::kHeaderTooLarge:
        return {431, "text/plain", {}, "header"};
      case ReadFailure::kMalformed:
        return {400, "text/plain", {}, "malformed"};
      case ReadFailure::kInternal:
        break;
    }
    return {500, "text/plain", {}, "failed"};
  }

  std::shared_ptr<StreamState> stream = std::make_shared<StreamState>();
};

class HttpServerTest : public testing::Test {
 protected:
  explicit HttpServerTest(uint32_t stalled_s_max = 60) {
    HttpServerOptions options;
    options.port = 0;
    options.body_bytes_max = 200'000;
    options.stalled_s_max = stalled_s_max;
    options.drain_s_max = 1;
    auto server = HttpServer::listen(options, clock_);
    EXPECT_TRUE(server.has_value());
    server_ = std::move(*server);
    thread_ = std::thread([this] { server_->run(handler_); });
  }
  ~HttpServerTest() override { stop(); }
  void stop() {
    if (!thread_.joinable()) return;
    server_->stop();
    thread_.join();
  }
  uint16_t port() const { return server_->port(); }

  /// Polls for at most five seconds.
  static bool eventually(const std::atomic<bool>& flag) {
    for (int i = 0; i < 1000 && !flag; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return flag;
  }

  SystemClock clock_;
  TestHandler handler_;
  std::unique_ptr<HttpServer> server_;
  std::thread thread_;
};

class HttpServerStallTest : public HttpServerTest {
 protected:
  HttpServerStallTest() : HttpServerTest(1) {}
};

TEST_F(HttpServerTest, AnswersRequestAfterRequestOnOneConnection) {
  Client client(port());
  for (const std::string body : {"a", "bb", ""}) {
    ASSERT_TRUE(client.send(post("/x?query=1", body)));
    const std::string head = client.read_until("\r\n\r\n");
    EXPECT_TRUE(head.starts_with("HTTP/1.1 200 OK\r\n")) << head;
    const std::string answer = "POST /x " + body;
    EXPECT_NE(head.find(fmt::format("content-length: {}\r\n", answer.size())), std::string::npos);
    EXPECT_EQ(client.read_until(answer), answer);
  }
}

TEST_F(HttpServerTest, AnswersPipelinedRequestsInOrder) {
  Client client(port());
  ASSERT_TRUE(client.send(post("/one", "1") + post("/two", "2")));
  EXPECT_NE(client.read_until("POST /one 1").find("200 OK"), std::string::npos);
  EXPECT_NE(client.read_until("POST /two 2").find("200 OK"), std::string::npos);
}

TEST_F(HttpServerTest, TakesTheTargetInAbsoluteForm) {
  Client client(port());
  for (const auto& [target, path] :
       {std::pair{"http://host/health?x=1", "/health"}, std::pair{"HTTPS://host:80/a/b", "/a/b"},
        std::pair{"http://host", "/"}, std::pair{"http://host?x=/y", "/"},
        std::pair{"/http://host/x", "/http://host/x"}}) {
    ASSERT_TRUE(client.send(post(target, "1")));
    const std::string answer = fmt::format("POST {} 1", path);
    client.read_until("\r\n\r\n");
    EXPECT_EQ(client.read_until(answer), answer) << target;
  }
}

TEST_F(HttpServerTest, AnswersAtOnceWhatIsAskedByAClientThatSendsNoMore) {
  Client client(port());
  ASSERT_TRUE(client.send(post("/x", "last")));
  client.shut_sending();
  EXPECT_TRUE(client.read_all().ends_with("POST /x last"));
}

TEST_F(HttpServerTest, ReadsChunkedBodies) {
  Client client(port());
  ASSERT_TRUE(
      client.send("POST /x HTTP/1.1\r\nhost: x\r\ntransfer-encoding: "
                  "chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"));
  EXPECT_NE(client.read_until("POST /x abcde").find("200 OK"), std::string::npos);
}

TEST_F(HttpServerTest, SendsAHeadWithoutItsBody) {
  Client client(port());
  ASSERT_TRUE(client.send("HEAD /x HTTP/1.1\r\nhost: x\r\n\r\n" + post("/y", "z")));
  const std::string first = client.read_until("\r\n\r\n");
  EXPECT_NE(first.find("content-length: 8\r\n"), std::string::npos) << first;
  EXPECT_TRUE(client.read_until("POST /y z").starts_with("HTTP/1.1 200"))
      << "a body came behind the HEAD";
}

TEST_F(HttpServerTest, SaysContinueOnlyWhenTheBodyIsWanted) {
  Client client(port());
  ASSERT_TRUE(client.send(
      "POST /x HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n"));
  EXPECT_EQ(client.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  ASSERT_TRUE(client.send("ok"));
  EXPECT_NE(client.read_until("POST /x ok").find("200 OK"), std::string::npos);

  Client refused(port());
  ASSERT_TRUE(refused.send(
      "POST /refused HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n"));
  EXPECT_TRUE(refused.read_until("\r\n\r\n").starts_with("HTTP/1.1 401"));
}

TEST_F(HttpServerTest, KeepsTheConnectionAfterASmallRefusedBody) {
  Client client(port());
  ASSERT_TRUE(client.send(post("/refused", "body") + post("/x", "y")));
  EXPECT_TRUE(client.read_until("no").starts_with("HTTP/1.1 401"));
  EXPECT_NE(client.read_until("POST /x y").find("200 OK"), std::string::npos);
}

TEST_F(HttpServerTest, RefusesABodyOverTheLimitWhileTheClientStillSends) {
  for (const bool chunked : {false, true}) {
    Client client(port());
    const std::string head =
        chunked ? "POST /x HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
                : "POST /x HTTP/1.1\r\nhost: x\r\ncontent-length: 5000000\r\n\r\n";
    ASSERT_TRUE(client.send(head));
    const std::string piece(100'000, 'x');
    for (int i = 0; i < 50; ++i) {
      client.send(chunked ? fmt::format("{:x}\r\n{}\r\n", piece.size(), piece) : piece);
    }
    const std::string answer = client.read_all();
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 413")) << answer.substr(0, 100);
    EXPECT_NE(answer.find("connection: close"), std::string::npos);
  }
}

TEST_F(HttpServerTest, RefusesWhatIsNoHttpAndHeadersWithoutEnd) {
  Client nonsense(port());
  nonsense.send("\x16\x03\x01 hello there\r\n\r\n");
  EXPECT_TRUE(nonsense.read_all().starts_with("HTTP/1.1 400"));
  Client endless(port());
  endless.send("GET / HTTP/1.1\r\n");
  for (int i = 0; i < 200; ++i)
    endless.send(fmt::format("x-{}: {}\r\n", i, std::string(1000, 'a')));
  EXPECT_TRUE(endless.read_all().starts_with("HTTP/1.1 431"));
}

TEST_F(HttpServerTest, TurnsAnExceptionIntoAnAnswer) {
  Client client(port());
  ASSERT_TRUE(client.send(post("/throw", "x") + post("/x", "y")));
  EXPECT_TRUE(client.read_until("failed").starts_with("HTTP/1.1 500"));
  EXPECT_NE(client.read_until("POST /x y").find("200 OK"), std::string::npos);
}

TEST_F(HttpServerTest, HandlesALargeBodyOnAWorker) {
  Client client(port());
  ASSERT_TRUE(client.send(post("/x", std::string(150'000, 'b'))));
  EXPECT_NE(client.read_until("POST /x long").find("200 OK"), std::string::npos);
}

// A race between the worker and the network thread over the last share of a connection. It shows
// under ThreadSanitizer.
TEST_F(HttpServerTest, EndsConnectionsOnTheNetworkThreadAlsoWhenAWorkerHadTheirRequest) {
  for (int i = 0; i < 300; ++i) {
    Client client(port());
    ASSERT_TRUE(client.send(post("/x", std::string(40'000, 'b'), "connection: close\r\n")));
    EXPECT_NE(client.read_all().find("200 OK"), std::string::npos);
  }
}

TEST_F(HttpServerTest, StreamsEachPieceAsItComes) {
  Client client(port());
  ASSERT_TRUE(client.send(post("/stream", "")));
  EXPECT_NE(client.read_until("\r\n\r\n").find("transfer-encoding: chunked"), std::string::npos);
  handler_.stream->say("one");
  EXPECT_EQ(client.read_until("3\r\none\r\n"), "3\r\none\r\n");
  handler_.stream->say("two", true);
  EXPECT_EQ(client.read_until("0\r\n\r\n"), "3\r\ntwo\r\n0\r\n\r\n");
  ASSERT_TRUE(client.send(post("/x", "again")));
  EXPECT_NE(client.read_until("POST /x again").find("200 OK"), std::string::npos);
}

TEST_F(HttpServerTest, StreamsToAnOldClientUntilTheConnectionEnds) {
  Client client(port());
  ASSERT_TRUE(client.send("POST /stream HTTP/1.0\r\ncontent-length: 0\r\n\r\n"));
  handler_.stream->say("all of it", true);
  const std::string answer = client.read_all();
  EXPECT_EQ(answer.find("chunked"), std::string::npos);
  EXPECT_TRUE(answer.ends_with("\r\n\r\nall of it")) << answer;
}

TEST_F(HttpServerTest, SeesAClientLeaveWithoutSendingAnything) {  // C07
  Client client(port());
  ASSERT_TRUE(client.send(post("/stream", "")));
  client.read_until("\r\n\r\n");
  ASSERT_TRUE(eventually(handler_.stream->started));
  EXPECT_FALSE(handler_.stream->cancelled);
  client.close();
  EXPECT_TRUE(eventually(handler_.stream->cancelled));
}

// Nobody wakes the connection: keep-alives after the first come only if it looks again by itself.
TEST_F(HttpServerTest, LooksAgainAtASilentStreamAsOftenAsItAsks) {
  const std::string beat = "4\r\nbeat\r\n";
  handler_.stream->beat_every(50'000'000);
  Client client(port());
  ASSERT_TRUE(client.send(post("/stream", "")));
  client.read_until("\r\n\r\n");
  for (int i = 0; i < 3; ++i) ASSERT_EQ(client.read_until(beat), beat) << i;
  // What is said meanwhile puts the next one off, and does not end them.
  handler_.stream->say("word");
  EXPECT_TRUE(client.read_until("word\r\n").ends_with("4\r\nword\r\n"));
  for (int i = 0; i < 2; ++i) ASSERT_EQ(client.read_until(beat), beat) << i;
  handler_.stream->say("", true);
  EXPECT_TRUE(client.read_until("0\r\n\r\n").ends_with("0\r\n\r\n"));
}

TEST_F(HttpServerTest, SendsEachByteOfALargeAnswerOnceToAClientThatIsLate) {
  const std::string& sent = large_text();
  Client client(port());
  ASSERT_TRUE(client.send(post("/large", "")));
  client.read_until("\r\n\r\n");
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // the socket buffers fill up
  EXPECT_TRUE(client.read(sent.size()) == sent);
  ASSERT_TRUE(client.send(post("/x", "next")));
  EXPECT_NE(client.read_until("POST /x next").find("200 OK"), std::string::npos);
}

TEST_F(HttpServerStallTest, LeavesAClientThatStopsInTheMiddleOfItsBody) {
  Client client(port());
  ASSERT_TRUE(client.send("POST /x HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nhalf"));
  EXPECT_TRUE(client.has_ended());
}

TEST_F(HttpServerStallTest, WaitsForABodyThatComesSlowly) {
  Client client(port());
  ASSERT_TRUE(client.send("POST /x HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n"));
  for (const char byte : std::string("unhurried")) {
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    ASSERT_TRUE(client.send({&byte, 1}));
  }
  EXPECT_NE(client.read_until("POST /x unhurried").find("200 OK"), std::string::npos);
}

TEST_F(HttpServerStallTest, CancelsAStreamWhoseClientNoLongerReads) {
  Client client(port());
  ASSERT_TRUE(client.send(post("/stream", "")));
  ASSERT_TRUE(eventually(handler_.stream->started));
  handler_.stream->say(std::string(50'000'000, 's'));
  EXPECT_TRUE(eventually(handler_.stream->cancelled));
}

TEST_F(HttpServerStallTest, WaitsForAClientThatReadsSlowly) {
  const std::string& sent = large_text();
  Client client(port());
  ASSERT_TRUE(client.send(post("/large", "")));
  client.read_until("\r\n\r\n");
  for (std::size_t got = 0; got < sent.size();) {
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
    const std::size_t more =
        client.read(std::min<std::size_t>(1'000'000, sent.size() - got)).size();
    ASSERT_GT(more, 0U) << "after " << got << " of " << sent.size() << " bytes";
    got += more;
  }
}

TEST_F(HttpServerTest, AnswersOthersWhileAClientDoesNotRead) {
  Client slow(port());
  ASSERT_TRUE(slow.send(post("/stream", "")));
  ASSERT_TRUE(eventually(handler_.stream->started));
  handler_.stream->say(std::string(50'000'000, 's'));  // more than the socket buffers take
  Client other(port());
  ASSERT_TRUE(other.send(post("/x", "me")));
  EXPECT_NE(other.read_until("POST /x me").find("200 OK"), std::string::npos);
}

TEST_F(HttpServerTest, StopsAtOnceWithIdleConnectionsAndEndsAnswersUnderWay) {
  Client idle(port());
  ASSERT_TRUE(idle.send(post("/x", "a")));
  idle.read_until("POST /x a");
  Client busy(port());
  ASSERT_TRUE(busy.send(post("/stream", "")));
  busy.read_until("\r\n\r\n");
  ASSERT_TRUE(eventually(handler_.stream->started));
  stop();  // returns: after the drain time the stream is told to end
  EXPECT_TRUE(handler_.stream->shut_down);
  EXPECT_EQ(idle.read_all(), "");
  EXPECT_TRUE(busy.read_all().ends_with("0\r\n\r\n"));
}

TEST_F(HttpServerTest, NamesThePortThatIsInUse) {
  HttpServerOptions options;
  options.port = port();
  const auto second = HttpServer::listen(options, clock_);
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().message,
            fmt::format("127.0.0.1:{}: the port is in use; choose another with --port", port()));
}

TEST(Loopback, KnowsItsOwnAddresses) {
  EXPECT_TRUE(*is_loopback("127.0.0.1"));
  EXPECT_TRUE(*is_loopback("::1"));
  EXPECT_FALSE(*is_loopback("0.0.0.0"));
  EXPECT_FALSE(*is_loopback("192.0.2.1"));
  EXPECT_FALSE(is_loopback("no such host.invalid").has_value());
}

}  // namespace
}  // namespace pagewise::server
