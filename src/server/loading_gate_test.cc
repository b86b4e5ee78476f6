// SPDX-License-Identifier: Apache-2.0
#include "server/loading_gate.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace pagewise::server {
namespace {

class Hello final : public Handler {
 public:
  std::optional<HttpResponse> begin(HttpRequest&) override { return std::nullopt; }
  Outcome handle(HttpRequest&&) override { return HttpResponse{200, "text/plain", {}, "hello"}; }
  HttpResponse read_failed(const HttpRequest&, ReadFailure) override {
    return {400, "text/plain", {}, ""};
  }
};

TEST(LoadingGate, AnswersEveryoneWith503UntilTheApiIsThere) {  // row 65
  LoadingGate gate(1);
  HttpRequest probe;
  probe.path = "/health";
  const auto refused = gate.begin(probe);
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->status, 503);
  EXPECT_NE(refused->body.find("server_error"), std::string::npos);
  HttpRequest message;
  message.path = "/v1/messages";
  const auto other = gate.begin(message);
  EXPECT_EQ(other->status, 503);
  EXPECT_NE(other->body.find("overloaded_error"), std::string::npos);
  EXPECT_EQ(other->headers.back().name, "retry-after");

  Hello api;
  gate.open(api);
  EXPECT_FALSE(gate.begin(probe).has_value());
  EXPECT_EQ(std::get<HttpResponse>(gate.handle(std::move(probe))).body, "hello");
}

TEST(IdSource, GivesDistinctIdsOfOneShape) {
  IdSource ids(7);
  std::set<std::string> seen;
  for (int i = 0; i < 1000; ++i) {
    const std::string id = ids.id("req_");
    EXPECT_EQ(id.size(), 26U);
    EXPECT_EQ(
        id.find_first_not_of("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", 4),
        std::string::npos);
    EXPECT_TRUE(seen.insert(id).second);
  }
  EXPECT_EQ(IdSource(7).id("x"), IdSource(7).id("x"));
  EXPECT_NE(IdSource(7).id("x"), IdSource(8).id("x"));
}

}  // namespace
}  // namespace pagewise::server
