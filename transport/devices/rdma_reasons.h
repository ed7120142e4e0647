// Why a port or an address can't be used: one function for each question, in the order in which a
// person would ask them. Each answers "" where nothing speaks against it; otherwise with what is
// the matter, a colon, and what to do (docs/paths.md has them all in a table).
//
// Threads: pure functions.
#pragma once

#include <string>

#include "transport/devices/rdma_choice.h"

namespace weft {

std::string WhyDeviceDenied(const RdmaPort& port, const RdmaFilter& filter);
std::string WhyNodeTypeDenied(const RdmaPort& port);
std::string WhyDeviceFilesDenied(const RdmaPort& port);
std::string WhyNotActive(const RdmaPort& port);
std::string WhyNoAddress(const RdmaPort& port);
std::string WhyAddressDenied(const RdmaPort& port, const RdmaAddress& address,
                             const RdmaFilter& filter);
std::string WhyGidDenied(const RdmaPort& port, const RdmaAddress& address,
                         const RdmaFilter& filter);
std::string WhyTooFewToLock(const RdmaPort& port, const RdmaProcessFacts& process);

}  // namespace weft
