// The fast endpoint: one thread, epoll, one canned response to every request. Listens on 127.0.0.1.
//
// It is there to be faster than any client, so it reads nothing of a request but its end (a body is
// not supported) and never builds a response. With -s it spins: it then answers without a wake-up,
// and its own sleeping does not show in the latency that a client sees.
//
// usage: fastserver -S PAGE [-p PORT] [-b BODY_BYTES] [-s] [-t LIFE_SECONDS]
#define _GNU_SOURCE
#include "common.h"
#include <sys/epoll.h>

static uint8_t matched[FD_LIMIT]; // per descriptor, see count_requests
static char input[65536];
static char *response;
static size_t response_bytes;

static void build_response(size_t body_bytes) {
    response = malloc(256 + body_bytes);
    if (!response) fail("malloc");
    int head = snprintf(response, 256,
                        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                        "Content-Length: %zu\r\nConnection: keep-alive\r\n\r\n",
                        body_bytes);
    memset(response + head, 'x', body_bytes);
    response_bytes = (size_t)head + body_bytes;
}

static void accept_all(int poll_fd, int listener, struct page *page) {
    for (int fd; (fd = accept_one(listener)) >= 0;) {
        struct epoll_event want = {.events = EPOLLIN, .data.fd = fd};
        matched[fd] = 0;
        add(&page->connections, 1);
        if (epoll_ctl(poll_fd, EPOLL_CTL_ADD, fd, &want)) close(fd);
    }
}

// Returns 1 if bytes came.
static int serve(int fd, struct page *page) {
    ssize_t n = recv(fd, input, sizeof input, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    if (n <= 0) {
        close(fd);
        return 0;
    }
    if (!load(&page->first_recv_ns)) store(&page->first_recv_ns, now_ns());
    unsigned found = count_requests(&matched[fd], input, (size_t)n);
    add(&page->requests, found);
    for (; found; found--) {
        if (!send_all(fd, response, response_bytes)) continue;
        if (errno == EAGAIN) add(&page->send_faults, 1); // it did not read
        close(fd);
        break;
    }
    return 1;
}

int main(int argc, char **argv) {
    int port = 9472, spin = 0, option;
    unsigned life_s = 120;
    size_t body_bytes = 100;
    const char *page_path = 0;
    while ((option = getopt(argc, argv, "S:p:b:st:")) != -1) switch (option) {
        case 'S': page_path = optarg; break;
        case 'p': port = atoi(optarg); break;
        case 'b': body_bytes = strtoull(optarg, 0, 10); break;
        case 's': spin = 1; break;
        case 't': life_s = (unsigned)atoi(optarg); break;
        default: return 2;
        }
    if (!page_path || !life_s) return 2;
    die_early(life_s);
    struct page *page = open_page(page_path);
    build_response(body_bytes);
    int listener = listen_on(port), poll_fd = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event events[512], want = {.events = EPOLLIN, .data.fd = listener};
    if (poll_fd < 0 || epoll_ctl(poll_fd, EPOLL_CTL_ADD, listener, &want)) fail("epoll");
    for (;;) { // ends by SIGTERM, by alarm, or with the parent
        int n = epoll_wait(poll_fd, events, 512, spin ? 0 : -1), received = 0;
        for (int i = 0; i < n; i++) {
            if (events[i].data.fd == listener)
                accept_all(poll_fd, listener, page);
            else
                received |= serve(events[i].data.fd, page);
        }
        // One clock read a turn: with its first receive this bounds the time under load.
        if (received) store(&page->last_recv_ns, now_ns());
    }
}
