#include "peer.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace medley::bench {
namespace {

TEST(Peer, NoCommandNoTimes) {
  Peer none("");
  EXPECT_EQ(none.time("mla 16 128 4096").us, 0);
  EXPECT_EQ(none.time("mla 16 128 4096").who, "");
}

TEST(Peer, AnswersEachCaseInTurn) {
  Peer peer("echo ready; while read name number; do echo \"$number.5 the $name\"; done");
  EXPECT_DOUBLE_EQ(peer.time("linear 12").us, 12.5);
  const PeerTime second = peer.time("mla 7");
  EXPECT_DOUBLE_EQ(second.us, 7.5);
  EXPECT_EQ(second.who, "the mla");
  EXPECT_EQ(peer.time("").who, "") << "a case without a twin is not asked for";
}

TEST(Peer, SaysWhyThereIsNone) {
  Peer peer("echo ready; read line; echo '- not enough memory'");
  const PeerTime time = peer.time("mla 1");
  EXPECT_EQ(time.us, 0);
  EXPECT_EQ(time.who, "not enough memory");
}

TEST(Peer, AProgramThatIsNotOneIsRefused) {
  EXPECT_THROW(Peer("exit 3"), Error);
  EXPECT_THROW(Peer("echo hello"), Error);
  Peer short_lived("echo ready");
  EXPECT_THROW(short_lived.time("mla 1"), Error);
  Peer silly("echo ready; read line; echo what");
  EXPECT_THROW(silly.time("mla 1"), Error);
}

}  // namespace
}  // namespace medley::bench
