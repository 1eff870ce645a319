#include "base/mapped_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"

namespace medley {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

class MappedFileTest : public testing::Test {
 protected:
  MappedFileTest() : folder_(std::filesystem::path(testing::TempDir()) / fmt::format("medley_mapped_{}", ::getpid())) {
    std::filesystem::create_directories(folder_);
  }
  ~MappedFileTest() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path file(const std::string& name, uintmax_t bytes) {
    std::ofstream(folder_ / name) << "begin";
    std::filesystem::resize_file(folder_ / name, bytes);  // the rest is a hole: no disk is used
    return folder_ / name;
  }
  void expect_refused(const std::filesystem::path& path, const std::string& message) {
    EXPECT_THAT([&] { MappedFile mapped(path); }, ThrowsMessage<Error>(HasSubstr(message)));
  }

  std::filesystem::path folder_;
};

TEST_F(MappedFileTest, AFileThatShrinksIsReportedAndKillsNobody) {
  const auto path = file("shrinks", 1u << 20), other = file("stays", 1u << 20);
  const MappedFile mapped(path), intact(other);
  EXPECT_EQ(mapped.bytes()[0], std::byte('b'));
  std::filesystem::resize_file(path, 4096);
  EXPECT_EQ(mapped.bytes()[0], std::byte('b'));
  mapped.check_intact();  // nothing that is gone was read yet
  EXPECT_EQ(mapped.bytes()[600'000], std::byte(0));
  EXPECT_EQ(mapped.bytes()[(1u << 20) - 1], std::byte(0));
  EXPECT_THAT([&] { mapped.check_intact(); }, ThrowsMessage<Error>(HasSubstr("became shorter than the 1048576 bytes")));
  intact.check_intact();
}

TEST_F(MappedFileTest, AMovedFileIsStillGuarded) {
  const auto path = file("moved", 1u << 20);
  MappedFile first(path);
  const MappedFile second(std::move(first));
  std::filesystem::resize_file(path, 0);
  EXPECT_EQ(second.bytes()[5000], std::byte(0));
  EXPECT_THROW(second.check_intact(), Error);
}

// What was there when the first file was mapped decides; a sanitizer, for one, has a handler of its own.
TEST_F(MappedFileTest, ABusErrorElsewhereGoesToTheHandlerBefore) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto raise_after = [&](void (*handler)(int)) {
    ::signal(SIGBUS, handler);
    const MappedFile mapped(file("unrelated", 4096));
    ::raise(SIGBUS);
  };
  EXPECT_EXIT(raise_after(SIG_DFL), testing::KilledBySignal(SIGBUS), "");
  EXPECT_EXIT(raise_after([](int) { ::_exit(42); }), testing::ExitedWithCode(42), "");
}

TEST_F(MappedFileTest, LinksAreFollowedToRegularFilesOnly) {
  const auto target = file("blob", 4096);
  std::filesystem::create_symlink(target, folder_ / "link");  // as model hubs keep their files
  EXPECT_EQ(MappedFile(folder_ / "link").bytes().size(), 4096u);
  std::filesystem::create_symlink(folder_ / "b", folder_ / "a");
  std::filesystem::create_symlink(folder_ / "a", folder_ / "b");
  expect_refused(folder_ / "a", "a: cannot be opened: Too many levels of symbolic links");
  std::filesystem::create_symlink(folder_ / "nowhere", folder_ / "dangling");
  expect_refused(folder_ / "dangling", "dangling: cannot be opened: No such file");
  std::filesystem::create_symlink("/dev/zero", folder_ / "endless");
  expect_refused(folder_ / "endless", "endless: is not a regular file");
  expect_refused(folder_, "is not a regular file");
}

TEST_F(MappedFileTest, APipeIsRefusedWithoutWaitingForAWriter) {
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  expect_refused(folder_ / "pipe", "pipe: is not a regular file");
}

TEST_F(MappedFileTest, ATerabyteOfNothingIsNotRead) {
  const auto path = file("sparse", uintmax_t(1) << 40);
  EXPECT_EQ(MappedFile(path).bytes().size(), size_t(1) << 40);
  EXPECT_THAT([&] { read_json(path); },
              ThrowsMessage<Error>(HasSubstr("1099511627776 bytes are too many for a file of text")));
}

}  // namespace
}  // namespace medley
