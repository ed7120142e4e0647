// Payloads that the messages of a stream tell of: a ring of memory that is lent once.
#include <algorithm>
#include <iostream>
#include <memory>

#include "examples/guide/guide.weft.h"
#include "weft/bulk.h"
#include "weft/channel.h"
#include "weft/coroutine.h"
#include "weft/memory.h"
#include "weft/server.h"

constexpr size_t kPartBytes = 256 << 10;
constexpr size_t kPlaces = 4;  // of the ring
constexpr size_t kParts = 20;

// Fetches what the messages tell of, one after the other, and looks whether it is as it should be.
class Notes final : public guide::Notes::CoService {
 public:
  explicit Notes(weft::Buffer* room) : room_(*room) {}

 private:
  weft::Task<absl::Status> CoUpload(
      weft::ServerContext& context,
      weft::ServerReaderWriter<guide::Fetched, guide::Chunk>& stream) override {
    guide::Chunk chunk;
    guide::Fetched fetched;
    while (co_await stream.CoRead(&chunk)) {
      absl::Status moved = co_await weft::Await<absl::Status>(
          [&](auto done) { context.bulk().Fetch(chunk.data(), room_.slice(), std::move(done)); });
      if (!moved.ok()) co_return moved;
      fetched.set_bytes(fetched.bytes() + chunk.data().length());
      if (!co_await stream.CoWrite(fetched)) co_return absl::AbortedError("nobody reads");
    }
    // Nobody has called WritesDone(): this was not all.
    if (context.cancelled()) co_return absl::CancelledError("the upload was given up");
    co_return absl::OkStatus();
  }

  weft::Buffer& room_;
};

absl::Status Upload(weft::Channel& channel) {
  auto ring = channel.AllocateBuffer(kPlaces * kPartBytes);
  if (!ring.ok()) return ring.status();

  guide::Notes::Stub stub(channel);
  weft::BulkCall bulk(channel);
  bulk.Lend((*ring)->slice());
  auto upload = stub.Upload({.bulk = &bulk});
  guide::Fetched fetched;
  for (size_t part = 0; part < kParts; ++part) {
    const weft::Slice place = (*ring)->slice(part % kPlaces * kPartBytes, kPartBytes);
    // The handler answers each part when it has fetched it: then its place is free again.
    if (part >= kPlaces && !upload.Read(&fetched)) break;
    std::fill(place.bytes().begin(), place.bytes().end(), std::byte(part));
    guide::Chunk chunk;
    if (auto told = bulk.Describe(place, chunk.mutable_data()); !told.ok()) return told;
    if (!upload.Write(chunk)) break;
  }
  upload.WritesDone();
  while (upload.Read(&fetched)) continue;
  absl::Status status = upload.Finish();  // the ring is this program's again
  if (status.ok()) std::cout << fetched.bytes() << " bytes were fetched" << std::endl;
  return status;
}

absl::Status Run() {
  auto server = weft::Server::Create();
  if (!server.ok()) return server.status();
  auto room = (*server)->AllocateBuffer(kPartBytes);
  if (!room.ok()) return room.status();
  Notes service(room->get());
  if (auto added = (*server)->AddService(&service); !added.ok()) return added;
  if (auto listening = (*server)->Listen("127.0.0.1:0"); !listening.ok()) return listening;

  auto channel = weft::Channel::Open((*server)->address());
  absl::Status status = channel.ok() ? Upload(**channel) : channel.status();
  (*server)->Shutdown(/*grace_us=*/0);  // no handler uses the room any more
  return status;
}

int main() {
  absl::Status status = Run();
  if (!status.ok()) std::cerr << status << std::endl;
  return status.ok() ? 0 : 1;
}
