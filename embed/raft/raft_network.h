// The network half of libraft's raft_io, over Weft: members of a group are peers of each other
// (Server::OpenPeer()), and what they say travels as one-way messages, large payloads as bulk.
//
//   raft_uv_init(&io, &loop, "/var/lib/group", &transport);       // or another disk half
//   auto network = RaftNetwork::Attach(&io, engine, options);
//   RaftRepair repair(&io);  // raft_repair.h; without it libraft 0.15 can lose entries
//   raft_init(&raft, &io, &fsm, id, "10.0.0.7:9001");
//   ...
//   raft_close(&raft, closed);      // then, outside of callbacks: network.reset(), raft_uv_close()
//
// Attach() puts functions of its own in the place of the struct's init, start, send and close; the
// first three call those that were there as well, so that the disk half keeps its ticks, and serves
// members that still speak another protocol. send() goes by Weft alone.
//
//   state      set by                       left for
//   kAttached  Attach()                     kStarted
//   kStarted   raft_io::start()             kClosing
//   kClosing   raft_io::close()             kClosed, when each send() has been called back; then
//                                           the disk half's close() runs
//   kClosed
//
// send() encodes a message and makes no turn of the engine: libraft must not be called while it is
// on the stack. The message goes to Weft at once, wherever send() was called; in the engine's next
// turn where its channel has to be opened, its payload to be lent, others wait for that, or a
// leader's writes alone are the quorum. It leaves when its peer is connected, and otherwise ends
// with RAFT_NOCONNECTION after kPatienceUs at the latest: libraft sends another one. Messages to
// one member arrive in the order in which they were sent, but for large ones, which smaller ones
// may overtake. So libraft may see entries whose predecessors come later; it refuses those, and is
// sent them again.
//
// A peer is known by the name that it gave itself (PeerName()), and speaks for itself alone. That
// proves nothing: where others reach the port, ServerOptions::security and ::authorizer say who is
// a member. A member is reached where the group's configuration says; what a peer tells of its
// address counts for those that are not in it, which are few (kMaxStrangers). An entry's bytes are
// the state machine's matter, but for those of RAFT_CHANGE, which libraft decodes: they are looked
// at here. What a member says of terms and logs is believed, as Raft believes it: one that lies can
// make others lose what is acknowledged, and one that contradicts what is committed ends libraft
// (RAFT_UNAVAILABLE).
//
// Entries go by messages, or, where both members say kRing, by writes into a ring in the receiver's
// memory and a message that says where they lie (raft_ring.h): their bytes pass through neither
// protobuf nor a buffer of their own on the receiver's side. What finds no room there, and all
// else, goes by messages, in the same order; so does everything until a ring is there. Or, where
// both say kRemoteWrites, by writes alone, which the receiver is not told of (raft_remote_writes.h,
// which says what that costs in durability).
//
// Members that have moved, or are gone, have channels that can only go outside of callbacks, and so
// have rings that were given up: Tidy().
//
// Threads: one, the engine's: that of libraft's loop. Lifetime: `io` and the engine outlive it; it
//   outlives libraft's use of `io`, and is destroyed outside of callbacks of the engine.
// Errors: raft_io's functions return libraft's codes, and leave words in raft_io::errmsg. A message
//   of a peer that is wrong is dropped, counted and logged.
// Invariants: each send() is called back once, never inside send(). What a message points to is not
//   looked at after that.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "embed/raft/libraft.h"
#include "embed/raft/raft_remote_writes.h"
#include "embed/raft/raft_ring.h"
#include "embed/raft/raft_wire.weft.h"
#include "weft/channel.h"
#include "weft/engine.h"
#include "weft/server.h"

namespace weft::embed {

// How entries get to other members.
enum class RaftReplication : uint8_t {
  kMessages = 1,
  kRing = 2,  // write, then notify; with members that say kMessages by messages
  // A leader's acknowledged writes are the quorum (raft_remote_writes.h): what is committed is on
  // the leader's disk, and in the MEMORY of other members, whose disks have it later. If a majority
  // ends at once (a power cut), the group stands still until somebody decides what is lost. With
  // members that say something else by messages. REQUIRES: a disk half that has failed to append
  // does not go on (as examples/raftkv/replica.h): libraft 0.15 would lead on, with another entry
  // in place of one that others hold.
  kRemoteWrites = 3,
};

struct RaftNetworkOptions {
  // Behaviour.
  // Where this member's Weft server listens, and where those of others are reached: by the address
  // that a member has in the group's configuration. Null: the same address, which is for a disk
  // half whose transport listens nowhere (as in examples/raftkv/raftkv_server.cc): with
  // raft_uv_tcp_init(), which listens there itself, it has to be another (embed/dqlite adds 10,000
  // to the port).
  std::function<std::string(std::string_view raft_address)> address_of = {};
  // Distinguishes groups that could reach each other by mistake; part of PeerName(). Printable
  // ASCII without blanks, at most 64 characters.
  std::string group = "raft";
  // Paths, security. `peer_id` and limits of messages are set here. A member has a connection with
  // each other one: so many fit into the 1,024 descriptors that many systems give a process.
  ServerOptions server = {.max_connections = 256};
  ChannelOptions channel = {};
  // What members may make this process allocate for payloads that are under way by bulk, all of
  // them together, in bytes.
  uint64_t max_payload_bytes = uint64_t{4} << 30;
  // Over RDMA what is written into rings is outside of TLS, as all one-sided operations are:
  // SecurityOptions::require_encryption leaves such paths out.
  RaftReplication replication = RaftReplication::kMessages;
  // kRemoteWrites needs it: keeps a mark where the member's next process finds it, though this one
  // is killed (a file that is synced): true: others take for acknowledged what only this process's
  // memory has; false: not any more. Called with true, until it succeeds, before the first such
  // entry, and with false when the member is closed and its disk has all. After an error entries go
  // by messages.
  std::function<absl::Status(bool)> keep_memory_mark = {};
  // The mark of the process before is true. This one gives and asks for no vote until a leader has
  // made up for what was lost, whatever `replication` is. To say false instead is to decide that
  // entries which were acknowledged may be lost, and that others may have applied them.
  bool memory_was_lost = false;
  // kRing, kRemoteWrites: memory for each member that leads or has led, and as much for each that
  // follows: 4 KiB to 64 MiB, a multiple of 16; the same in all members: one with more than this
  // one gets messages from it. An entry may have half of it. Higher: more may be under way to a
  // slow member before entries go by messages.
  uint64_t ring_bytes = uint64_t{4} << 20;
};

// Since Attach().
struct RaftNetworkStats {
  uint64_t sent = 0;        // messages that a connection has taken, or that arrived (large ones)
  uint64_t failed = 0;      // RAFT_NOCONNECTION, RAFT_CANCELED
  uint64_t received = 0;    // handed to libraft; what was written is counted in rings
  uint64_t refused = 0;     // of peers: malformed, too large, in another's name
  uint64_t sent_bytes = 0;  // of payload
  uint64_t large_sent = 0;  // by bulk
  uint64_t large_received = 0;
  RaftRings::Stats rings = {};  // kRing, kRemoteWrites
};

class RaftNetwork {
 public:
  // A payload of more bytes travels as bulk. Attachments go up to 64 MiB; a snapshot, or a log that
  // a member lacks, is better fetched by the receiver into its place, while others talk.
  static constexpr uint64_t kLargeBytes = uint64_t{1} << 20;
  // Up to here the bytes are copied into the message: what a separate attachment would cost more.
  static constexpr uint64_t kInlineBytes = 16 << 10;
  // How long a message waits for its peer, in microseconds: libraft's election timeout, 1 s, is
  // about when it would be worth nothing.
  static constexpr uint64_t kPatienceUs = 1'000'000;
  // The same for payload by bulk: 4 GiB at the 16 MB/s of a slow network.
  static constexpr uint64_t kLargePatienceUs = 256'000'000;

  // Peers that the configuration does not name: the members of a group that this one joins, until
  // it has their configuration, and members that were removed.
  static constexpr size_t kMaxStrangers = 16;

  static absl::StatusOr<std::unique_ptr<RaftNetwork>> Attach(raft_io* io, Engine& engine,
                                                             const RaftNetworkOptions& options);
  ~RaftNetwork();
  RaftNetwork(const RaftNetwork&) = delete;
  RaftNetwork& operator=(const RaftNetwork&) = delete;

  // By which a member is known to others: "GROUP/ID".
  static std::string PeerName(std::string_view group, raft_id id);

  // Lets go of channels to addresses that members have left, and of strangers that were sent
  // nothing since the last time. To be called now and then, once a second as a rule, outside of
  // callbacks of the engine; until then messages to a member that has moved fail.
  void Tidy();

  RaftNetworkStats stats() const;
  // Where it listens; empty before start().
  std::string address() const;
  // It does not vote: RaftNetworkOptions::memory_was_lost, and no leader has made up for it yet.
  bool recovering() const { return remote_writes_->recovering(); }
  // How the member is reached; UNAVAILABLE when it is not, or was never sent anything.
  absl::StatusOr<PathInfo> PathTo(raft_id id);

 private:
  class Member;    // the service that peers call
  struct Peer;     // a channel
  struct Sending;  // one send()
  struct Fetching;

  enum class State : uint8_t { kAttached = 1, kStarted = 2, kClosing = 3, kClosed = 4 };

  RaftNetwork(raft_io* io, Engine& engine, const RaftNetworkOptions& options);

  // raft_io's.
  static int Init(raft_io* io, raft_id id, const char* address);
  static int Start(raft_io* io, unsigned msecs, raft_io_tick_cb tick, raft_io_recv_cb recv);
  static int Send(raft_io* io, raft_io_send* request, const raft_message* message,
                  raft_io_send_cb callback);
  static void Close(raft_io* io, raft_io_close_cb callback);
  static void OnDiskClosed(raft_io* io);
  static raft_time Time(raft_io* io);
  // Given to the disk half, for libraft's.
  static void Tick(raft_io* io);
  static void Receive(raft_io* io, raft_message* message);

  absl::Status Listen();
  // Where the configuration has the member; empty: it does not.
  std::string_view ConfiguredAddress(raft_id id) const;
  // UNAVAILABLE: the member has moved; or there is none yet, and none is opened.
  absl::StatusOr<Channel*> ChannelTo(raft_id id, std::string_view told_address, bool may_open);
  // Into *sending: all that does not need the engine.
  absl::Status Encode(const raft_message& message, Sending* sending);
  void StartUnsent();  // in a turn of the engine
  // An error: it was not started. `in_send`: libraft is on the stack, no turn of the engine is made
  // and nobody called back. REQUIRES then: it is neither large nor a record.
  absl::Status Start(std::list<Sending>::iterator sending, bool in_send);
  static bool HasEntries(const Sending& sending);
  void OnNotSent(const Sending& sending);
  void OnSent(std::list<Sending>::iterator sending, const absl::Status& status);
  void CloseWhenQuiet();
  // INVALID_ARGUMENT: a message that would have libraft, which trusts members, use memory wrongly.
  absl::Status CheckForLibraft(const raft_message& message) const;
  // The message of a peer, whose payload is there. Hands it to libraft, or drops it.
  void HandOver(raft_message* message);
  absl::Status CheckSender(const ServerContext& context, const wire::Message& message);
  absl::Status HearOfRings(const ServerContext& context, const wire::Message& message);
  std::string AddressOf(std::string_view raft_address) const;

  raft_io* const io_;
  const raft_io disk_;  // the functions that were there
  Engine& engine_;
  const RaftNetworkOptions options_;

  State state_ = State::kAttached;
  raft_id id_ = 0;
  std::string address_;  // in the group's configuration
  raft_io_tick_cb tick_ = nullptr;
  raft_io_recv_cb receive_ = nullptr;
  std::optional<raft_time> now_;       // during a tick, for all of it
  raft_io_close_cb closed_ = nullptr;  // null: nobody waits for the disk half any more
  RaftNetworkStats stats_;
  uint64_t fetching_bytes_ = 0;  // of payloads that are under way to here

  const std::unique_ptr<Member> member_;
  std::unique_ptr<Server> server_;
  std::map<raft_id, Peer> peers_;                    // go before the server
  std::unique_ptr<RaftRings> rings_;                 // go before the peers; null: not kRing
  std::unique_ptr<RaftRemoteWrites> remote_writes_;  // as the rings; always there
  std::list<Sending> unsent_;                        // wait for StartUnsent()
  std::list<Sending> sending_;
  // What StartUnsent() is posted with; null in it: this object is gone.
  const std::shared_ptr<RaftNetwork*> self_;
};

}  // namespace weft::embed
