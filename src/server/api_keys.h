// SPDX-License-Identifier: Apache-2.0
// Who may ask, and whose cache is whose.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "base/result.h"
#include "server/http.h"

namespace pagewise::server {

/// Thread: immutable; any.
class ApiKeys {
 public:
  /// No keys: any credential or none is accepted.
  ApiKeys() = default;
  explicit ApiKeys(const std::vector<std::string>& keys);
  /// One key a line; '#' at a line's start or behind white space starts a comment; blank lines and
  /// a byte order mark are skipped. Errors: kIo; kInvalidArgument for a directory or a file without
  /// a key.
  static Result<ApiKeys> from_file(const std::string& path);
  static ApiKeys from_text(std::string_view text);

  bool configured() const { return !digests_.empty(); }
  /// Compares digests of equal length, all of them, without an early exit: timing says nothing
  /// about a key.
  bool accepts(std::string_view key) const;

 private:
  std::vector<Sha256> digests_;
};

/// `x-api-key`, else `Authorization: Bearer`. nullopt when neither is there.
std::optional<std::string> presented_key(const HttpRequest& request);

/// The name under which a request's blocks are cached: a digest of the key, narrowed by the
/// workspace header and by `cache_salt`. An empty salt is no salt.
std::string cache_namespace(std::string_view key, std::string_view workspace,
                            std::string_view salt);

}  // namespace pagewise::server
