// SPDX-License-Identifier: Apache-2.0
#include "base/system_memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace pagewise {
namespace {

class SystemMemoryTest : public testing::Test {
 protected:
  SystemMemoryTest()
      : root_(std::filesystem::temp_directory_path() /
              ("pagewise_memory_" +
               std::to_string(testing::UnitTest::GetInstance()->random_seed()) + "_" +
               testing::UnitTest::GetInstance()->current_test_info()->name())) {
    std::filesystem::remove_all(root_);
    write("proc/meminfo", "MemTotal: 2000 kB\nMemAvailable:   1000 kB\n");
  }
  ~SystemMemoryTest() override { std::filesystem::remove_all(root_); }

  void write(const std::string& name, const std::string& text) {
    const std::filesystem::path path = root_ / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  uint64_t available() {
    const auto room = available_memory({(root_ / "proc").string(), (root_ / "cgroup").string()});
    EXPECT_TRUE(room.has_value());
    return room.has_value() ? *room : 0;
  }

  const std::filesystem::path root_;
};

TEST_F(SystemMemoryTest, IsWhatTheMachineHasWithoutAGroup) { EXPECT_EQ(available(), 1000U * 1024); }

TEST_F(SystemMemoryTest, IsTheRoomUnderAGroupsLimitWithoutDroppablePages) {
  write("proc/self/cgroup", "0::/a/b\n");
  write("cgroup/a/b/memory.max", "500000\n");
  write("cgroup/a/b/memory.current", "300000\n");
  write("cgroup/a/b/memory.stat", "anon 100000\ninactive_file 200000\n");
  EXPECT_EQ(available(), 400000U);
}

TEST_F(SystemMemoryTest, LooksAtTheGroupsAroundItToo) {
  write("proc/self/cgroup", "0::/a/b\n");
  write("cgroup/a/b/memory.max", "max\n");
  write("cgroup/a/b/memory.current", "300000\n");
  write("cgroup/a/memory.max", "350000\n");
  write("cgroup/a/memory.current", "300000\n");
  EXPECT_EQ(available(), 50000U);
}

TEST_F(SystemMemoryTest, ReadsVersionOneGroups) {
  write("proc/self/cgroup", "5:cpu:/x\n4:memory:/x\n");
  write("cgroup/memory/x/memory.limit_in_bytes", "600000\n");
  write("cgroup/memory/x/memory.usage_in_bytes", "100000\n");
  EXPECT_EQ(available(), 500000U);
}

TEST_F(SystemMemoryTest, IsNothingWhenAGroupIsOverItsLimit) {
  write("proc/self/cgroup", "0::/\n");
  write("cgroup/memory.max", "1000\n");
  write("cgroup/memory.current", "5000\n");
  EXPECT_EQ(available(), 0U);
}

TEST_F(SystemMemoryTest, ReadsWhatTheProcessHolds) {
  write("proc/self/status", "Name:\tpagewise\nVmPeak:\t 900 kB\nVmRSS:\t     300 kB\n");
  const MemoryRoots roots{(root_ / "proc").string(), (root_ / "cgroup").string()};
  const auto resident = resident_memory(roots);
  ASSERT_TRUE(resident.has_value()) << resident.error().message;
  EXPECT_EQ(*resident, 300U * 1024);
  write("proc/self/status", "Name:\tpagewise\n");
  EXPECT_NE(resident_memory(roots).error().message.find("VmRSS"), std::string::npos);
}

TEST(SystemMemory, SaysWhichFileItMissed) {
  const auto room = available_memory({"/nonexistent", "/nonexistent"});
  ASSERT_FALSE(room.has_value());
  EXPECT_NE(room.error().message.find("/nonexistent/meminfo"), std::string::npos);
}

}  // namespace
}  // namespace pagewise
