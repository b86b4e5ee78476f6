// SPDX-License-Identifier: Apache-2.0
// What the commands share of being a Unix program: streams, limits, clocks, and how they end.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace pagewise::cli {

/// Writes out what was printed. Errors: kIo when standard output did not take all of it.
Status flush_output();

/// How every command ends: with all of its output written, or else an error, which becomes one
/// line, "pagewise COMMAND: MESSAGE", and status 1.
void finish(std::string_view command, const Status& status, int& exit_status);

/// Shows how far something is (0 to 1) as "WHAT 37 %", on a terminal only; elsewhere it is empty.
std::function<void(double)> progress_line(std::string what);
/// The same of loading a model.
std::function<void(double)> load_progress();

/// Every connection is a file descriptor, and the usual soft limit of 1,024 is below what one
/// thread serves.
void raise_descriptor_limit();

/// Large buffers go back to the system when they are freed. glibc by itself raises the size from
/// which it does that to the largest one freed so far: after a request of 5 MB others of that size
/// would stay in the heaps of the threads that had them.
void return_large_buffers();

/// A log that nobody reads any more must not end the server (SIGPIPE), and where standard output
/// was closed at the start, the model file or a socket must not get its number and then the log.
void guard_standard_streams();

/// "1 token", "2 tokens".
std::string counted(uint64_t count, std::string_view noun);

int64_t unix_time_s();
/// Seconds since 1970 in local time: for templates that write the date.
int64_t local_time_s();

}  // namespace pagewise::cli
