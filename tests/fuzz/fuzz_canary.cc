// SPDX-License-Identifier: Apache-2.0
// A bug on purpose. `./dev fuzz` looks for this one first: a fuzzer that does not find it within
// seconds would find nothing else either, and its silence would mean nothing.
#include "fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  pagewise::fuzz::Input in(data, size);
  for (const char letter : {'P', 'A', 'G', 'E'}) {
    if (in.byte() != static_cast<uint8_t>(letter)) return 0;
  }
  FUZZ_CHECK(in.number(2) != 0xcafe, "the canary sings");
  return 0;
}
