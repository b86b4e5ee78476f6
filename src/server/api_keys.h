// SPDX-License-Identifier: Apache-2.0
// Who may ask, how much at once, and whose cache is whose.
//
// A key file has one key a line, and behind it what the key may do:
//
//   # comment
//   sk-9f2c...  name=ci tenant=acme max-requests=4 max-tokens=20000
//   sk-77ab...  name=ops admin
//   sk-01d4...  tenant=acme floor=200 ceiling=800
//   sk-5e60...  public
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "base/result.h"
#include "engine/operations.h"
#include "server/http.h"

namespace pagewise::server {

/// One line of the key file. The key itself is not kept.
struct ApiKey {
  Sha256 digest{};
  uint32_t index = 0;         // among the keys
  std::string name;           // for log lines; may be empty
  std::string tenant;         // keys of one tenant share a cache; empty: a cache of its own
  uint32_t requests_max = 0;  // under way at once; 0: no limit of its own
  uint64_t tokens_max = 0;    // under way at once, prompts and answers; 0: no limit of its own
  bool admin = false;
  bool shared = false;  // 'public': shares one cache with all keys that are marked so
  // KV blocks of the account's cache (kv/quota.h); 0: none.
  uint32_t floor_blocks = 0, ceiling_blocks = 0;

  /// Whose cache and whose statistics: "public", "tenant:NAME" or "key:DIGEST". No '/' in it.
  std::string account() const;
};

/// Thread: immutable; any.
class ApiKeys {
 public:
  /// No keys: any credential or none is accepted.
  ApiKeys() = default;
  /// Plain keys without attributes.
  explicit ApiKeys(const std::vector<std::string>& keys);
  /// '#' at a line's start or behind white space starts a comment; blank lines and a byte order
  /// mark are skipped. Errors: kIo; kInvalidArgument for a directory, a file without a key, an
  /// unknown, doubled or malformed attribute, a key that stands there twice, attributes that
  /// contradict each other: with file and line, without the key.
  static Result<ApiKeys> from_file(const std::string& path);
  /// The same of a text; `where` stands in messages for the file.
  static Result<ApiKeys> from_text(std::string_view text, std::string_view where = "keys");

  bool configured() const { return !keys_.empty(); }
  std::size_t size() const { return keys_.size(); }
  const std::vector<ApiKey>& all() const { return keys_; }
  /// Floors and ceilings, one an account that has any; said on one of its keys, they hold for all.
  std::vector<engine::NamespaceQuota> quotas() const;
  /// nullptr: not a valid key. Compares digests of equal length, all of them, without an early
  /// exit: timing says nothing about a key.
  const ApiKey* find(std::string_view key) const;

 private:
  std::vector<ApiKey> keys_;
};

/// `x-api-key`, else `Authorization: Bearer`. nullopt when neither is there.
std::optional<std::string> presented_key(const HttpRequest& request);

/// The account of all keys that are marked 'public'.
inline constexpr std::string_view kPublicAccount = "public";

/// The account of everybody where no keys are configured.
inline constexpr std::string_view kOpenAccount = "everyone";

/// The name under which a request's blocks are cached: the account, narrowed by the workspace
/// header and by `cache_salt`: "account/DIGEST". An empty salt is no salt.
std::string cache_namespace(std::string_view account, std::string_view workspace,
                            std::string_view salt);

}  // namespace pagewise::server
