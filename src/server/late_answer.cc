// SPDX-License-Identifier: Apache-2.0
#include "server/late_answer.h"

#include <mutex>
#include <utility>

namespace pagewise::server {
namespace {

class LateAnswer final : public Exchange {
 public:
  LateAnswer(std::function<void(Answered)> begin, HttpResponse stopping)
      : begin_(std::move(begin)), stopping_(std::move(stopping)) {}

  void start(std::function<void()> wake) override {
    begin_([box = box_, wake = std::move(wake)](std::function<HttpResponse()> write) {
      {
        std::lock_guard lock(box->mutex);
        box->write = std::move(write);
      }
      wake();
    });
  }
  Progress poll(TimeNs) override {
    Progress progress;
    std::function<HttpResponse()> write;
    {
      std::lock_guard lock(box_->mutex);
      write = std::exchange(box_->write, nullptr);
    }
    if (write) {
      progress.whole = write();
    } else if (stopped_) {
      progress.whole = std::move(stopping_);
    }
    progress.done = progress.whole.has_value();
    return progress;
  }
  void cancel() override {}
  void shut_down() override { stopped_ = true; }

 private:
  struct Box {
    std::mutex mutex;
    std::function<HttpResponse()> write;  // guarded by mutex
  };
  const std::shared_ptr<Box> box_ = std::make_shared<Box>();
  const std::function<void(Answered)> begin_;
  HttpResponse stopping_;
  bool stopped_ = false;
};

}  // namespace

std::unique_ptr<Exchange> make_late_answer(std::function<void(Answered)> begin,
                                           HttpResponse stopping) {
  return std::make_unique<LateAnswer>(std::move(begin), std::move(stopping));
}

}  // namespace pagewise::server
