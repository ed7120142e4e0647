#include "transport/ofi/hints.h"

#include <cstring>

namespace weft {
namespace {

InfoPtr CommonHints(const char* provider) {
  InfoPtr hints = NewInfo();
  hints->fabric_attr->prov_name = strdup(provider);
  hints->caps = FI_MSG | FI_RMA;
  hints->mode = 0;
  hints->domain_attr->mr_mode = 0;
  hints->domain_attr->threading = FI_THREAD_DOMAIN;  // one thread drives a domain: no locks needed
  hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
  hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
  hints->tx_attr->msg_order = FI_ORDER_SAS | FI_ORDER_SAW;
  hints->rx_attr->msg_order = FI_ORDER_SAS | FI_ORDER_SAW;
  return hints;
}

}  // namespace

InfoPtr TcpHints() {
  InfoPtr hints = CommonHints("tcp");
  hints->ep_attr->type = FI_EP_MSG;
  hints->ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT;
  hints->domain_attr->data_progress = FI_PROGRESS_UNSPEC;  // 1.17 says auto and means manual
  return hints;
}

InfoPtr VerbsHints(const std::string& device, const std::string& host) {
  InfoPtr hints = CommonHints("verbs");
  hints->ep_attr->type = FI_EP_MSG;
  hints->ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT;
  hints->domain_attr->name = strdup(device.c_str());
  hints->addr_format =
      host.find(':') == std::string::npos ? FI_SOCKADDR_IN : FI_SOCKADDR_IN6;  // not guessed for v6
  hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
  hints->domain_attr->data_progress = FI_PROGRESS_UNSPEC;  // by the device
  hints->domain_attr->resource_mgmt = FI_RM_UNSPEC;        // it manages none: we do
  return hints;
}

}  // namespace weft
