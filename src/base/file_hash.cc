// SPDX-License-Identifier: Apache-2.0
#include "base/file_hash.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <vector>

#include "base/check.h"

namespace pagewise {

Result<Sha256> sha256_of_files(std::span<const std::string> paths) {
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(),
                                                                        EVP_MD_CTX_free);
  PW_CHECK(context != nullptr && EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) == 1);
  std::vector<char> piece(1 << 20);
  for (const std::string& path : paths) {
    errno = 0;
    std::ifstream file(path, std::ios::binary);
    while (file) {
      file.read(piece.data(), static_cast<std::streamsize>(piece.size()));
      PW_CHECK(EVP_DigestUpdate(context.get(), piece.data(),
                                static_cast<std::size_t>(file.gcount())) == 1);
    }
    if (!file.eof()) {
      return Error{
          ErrorCode::kIo,
          fmt::format("{}: {}", path, errno == 0 ? "cannot be read" : std::strerror(errno))};
    }
  }
  Sha256 digest;
  PW_CHECK(EVP_DigestFinal_ex(context.get(), digest.data(), nullptr) == 1);
  return digest;
}

}  // namespace pagewise
