// The paced inference endpoint: every POST, whatever it asks for, starts a stream of -n chunks of a
// chat completion, one token each. Listens on 127.0.0.1. It spins while a stream is open, so that a
// chunk leaves at its instant; it sleeps otherwise.
//
// One chunk is one SSE event in one HTTP chunk in one send, as inference servers do it; with -k,
// so many chunks share a send, as behind a proxy that bunches them. As with llama.cpp and vLLM, the
// head and the role event go out with the first token. The end (finish, usage, [DONE]) goes out
// with the last token, or with -g in a write of its own.
//
// Paces: -g, each stream for itself: the first write FIRST_US after its request, then one every
// GAP_US, and the end a random part of a gap after the last. So the true TTFT and the true gaps are
// the same for all, and streams that were begun together drift apart. -r, all streams in turn,
// together so many chunks a second; -r 0, as fast as they are read. Instants that are missed by
// 1 ms or more are given up: the schedule of all streams moves back by the delay.
//
// The truth (-T): when the kernel got each request, which on loopback is inside the client's own
// send; and the instant right before the send of each write.
//
// usage: sseserver -S PAGE [-p PORT] [-r CHUNKS_PER_SECOND | -g GAP_US [-f FIRST_US]]
//                  [-n CHUNKS_PER_RESPONSE] [-k CHUNKS_PER_WRITE] [-b EVENT_BYTES]
//                  [-T TRUTH [-N ENTRIES]] [-t LIFE_SECONDS]
#define _GNU_SOURCE
#include "common.h"
#include <sys/epoll.h>

#define SLIP_NS 1000000ull
#define EVENT_BYTES_LIMIT 4096
#define CHUNKS_PER_WRITE_LIMIT 64
#define PROMPT_TOKENS 16

// The harness knows this layout.
struct truth {
    uint64_t at_ns;  // CLOCK_MONOTONIC
    uint32_t chunks; // 0: the request came; else chunks of its response with this write
    uint32_t serial; // of the request
};

struct stream {
    uint64_t body_left; // bytes of a request's body still to come
    uint32_t left;      // chunks still to send
    uint32_t serial;
    uint8_t is_post;    // whose body is coming
    uint8_t is_queued;  // its next write is in the queue
    uint8_t is_ending;  // which is the end alone
    uint8_t is_dead;    // cut; closed when it leaves the queue
};

struct due {
    uint64_t at_ns; // on the clock of the pace, which stands still while the server is late
    int fd;
};

struct text {
    char *bytes;
    size_t count;
};

static struct stream streams[FD_LIMIT];
static struct due queue[FD_LIMIT]; // a binary heap, the earliest first
static size_t queued;
static struct truth *truth; // null: records nothing
static uint64_t entries = 4000000, late_ns, slot_ns, gap_ns, first_ns;
static uint32_t chunks_per_response = 64, chunks_per_write = 1, serials;
static int is_in_turn = 1, is_saturating;
static char input[65536 + 1];
// A response's only write, its first, one between, its last; and the end.
static struct text only_write, first_write, next_write, last_write, end_write;

static void swap(size_t a, size_t b) {
    struct due kept = queue[a];
    queue[a] = queue[b];
    queue[b] = kept;
}

static void push(int fd, uint64_t at_ns) {
    size_t i = queued++;
    queue[i] = (struct due){at_ns, fd};
    for (; i && queue[(i - 1) / 2].at_ns > queue[i].at_ns; i = (i - 1) / 2) swap(i, (i - 1) / 2);
    streams[fd].is_queued = 1;
}

static struct due pop(void) {
    struct due earliest = queue[0];
    queue[0] = queue[--queued];
    for (size_t i = 0, child; (child = 2 * i + 1) < queued; i = child) {
        if (child + 1 < queued && queue[child + 1].at_ns < queue[child].at_ns) child++;
        if (queue[i].at_ns <= queue[child].at_ns) break;
        swap(i, child);
    }
    streams[earliest.fd].is_queued = 0;
    return earliest;
}

// xorshift64; the phases of the streams need no more.
static uint64_t draw(uint64_t below) {
    static uint64_t state = 88172645463325252ull;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return below ? state % below : 0;
}

// The instant of a stream's next write; `now_ns` and `before_ns` on the clock of the pace.
static uint64_t next_due(int is_first, uint64_t now_ns, uint64_t before_ns) {
    if (is_saturating) return ++slot_ns; // long past, in the order of asking
    if (is_in_turn) return slot_ns = slot_ns + gap_ns > now_ns ? slot_ns + gap_ns : now_ns;
    return is_first ? now_ns + first_ns : before_ns + gap_ns;
}

static void note(struct page *page, uint64_t at_ns, uint32_t chunks, uint32_t serial) {
    uint64_t at = load(&page->recorded);
    if (!truth || at >= entries) return;
    truth[at] = (struct truth){at_ns, chunks, serial};
    store(&page->recorded, at + 1);
}

static void cut(int fd) {
    streams[fd].is_dead = 1;
    if (!streams[fd].is_queued)
        close(fd);
    else
        shutdown(fd, SHUT_RDWR);
}

static void cut_for_fault(int fd, struct page *page) {
    add(&page->send_faults, 1);
    cut(fd);
}

static void accept_all(int poll_fd, int listener, struct page *page) {
    for (int fd; (fd = accept_one(listener)) >= 0;) {
        struct epoll_event want = {.events = EPOLLIN | EPOLLET, .data.fd = fd};
        streams[fd] = (struct stream){0};
        add(&page->connections, 1);
        if (epoll_ctl(poll_fd, EPOLL_CTL_ADD, fd, &want)) close(fd);
    }
}

// What the tools ask besides: which models there are, whether all is well; metrics there are none.
static int answer_get(int fd, const char *path) {
    static const char MODELS[] = "{\"object\":\"list\",\"data\":[{\"id\":\"mock\",\"object\":"
                                 "\"model\",\"created\":1767225600,\"owned_by\":\"perf\"}]}";
    int is_known = !strncmp(path, "/v1/models", 10) || !strncmp(path, "/health", 7);
    char answer[512];
    int n = snprintf(answer, sizeof answer,
                     "HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                     is_known ? "200 OK" : "404 Not Found", is_known ? sizeof MODELS - 1 : 0,
                     is_known ? MODELS : "");
    return send_all(fd, answer, (size_t)n);
}

// A whole request is there; returns -1 if it is a fault.
static int answer(int fd, uint64_t kernel_ns, struct page *page) {
    struct stream *stream = &streams[fd];
    if (stream->is_queued) return -1; // a second one before the end of the stream
    uint64_t now = now_ns(), got_ns = now;
    if (kernel_ns) {
        struct timespec t;
        clock_gettime(CLOCK_REALTIME, &t);
        got_ns -= (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec - kernel_ns;
    }
    add(&page->requests, 1);
    if (!load(&page->first_recv_ns)) store(&page->first_recv_ns, now);
    stream->left = chunks_per_response;
    stream->serial = serials++;
    note(page, got_ns, 0, stream->serial);
    push(fd, next_due(1, now - late_ns, 0));
    return 0;
}

// A head is never cut in two: every client here sends it in one piece.
static int read_head(int fd, char *head, char *end) {
    struct stream *stream = &streams[fd];
    *end = 0;
    char *length = strcasestr(head, "\r\ncontent-length:");
    if (strcasestr(head, "\r\ntransfer-encoding:")) return -1;
    stream->is_post = !strncmp(head, "POST ", 5);
    stream->body_left = length ? strtoull(length + 17, 0, 10) : 0;
    return stream->is_post || strncmp(head, "GET ", 4) ? 0 : answer_get(fd, head + 4);
}

// Returns -1 if the connection is to be cut for what it sent.
static int take(int fd, char *bytes, char *end, uint64_t kernel_ns, struct page *page) {
    struct stream *stream = &streams[fd];
    while (bytes < end) {
        if (!stream->body_left) {
            char *head_end = memmem(bytes, (size_t)(end - bytes), "\r\n\r\n", 4);
            if (!head_end || read_head(fd, bytes, head_end)) return -1;
            bytes = head_end + 4;
        }
        uint64_t here = (uint64_t)(end - bytes);
        uint64_t taken = here < stream->body_left ? here : stream->body_left;
        stream->body_left -= taken;
        bytes += taken;
        if (!stream->body_left && stream->is_post && answer(fd, kernel_ns, page)) return -1;
    }
    return 0;
}

static void serve(int fd, struct page *page) {
    while (!streams[fd].is_dead) {
        uint64_t kernel_ns;
        ssize_t n = recv_stamped(fd, input, sizeof input - 1, &kernel_ns);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return;
        if (n <= 0)
            cut(fd);
        else if (take(fd, input, input + n, kernel_ns, page))
            cut_for_fault(fd, page);
    }
}

// Sends a stream's next write, after it has put the one after it into the queue.
static void send_next(uint64_t now, struct page *page) {
    struct due due = pop();
    struct stream *stream = &streams[due.fd];
    if (stream->is_dead) {
        close(due.fd);
        return;
    }
    int is_first = stream->left == chunks_per_response, is_last = stream->left <= chunks_per_write;
    int is_end = stream->is_ending || (is_last && is_in_turn);
    struct text *text = stream->is_ending    ? &end_write
                        : is_first && is_last ? &only_write
                        : is_first            ? &first_write
                        : is_last             ? &last_write
                                              : &next_write;
    uint32_t count = stream->is_ending ? 0 : is_last ? stream->left : chunks_per_write;
    stream->left -= count;
    if (count) note(page, now_ns(), chunks_per_response - stream->left, stream->serial);
    stream->is_ending = is_last && !is_end;
    if (stream->is_ending)
        push(due.fd, due.at_ns + draw(gap_ns));
    else if (!is_end)
        push(due.fd, next_due(0, now - late_ns, due.at_ns));
    if (send_all(due.fd, text->bytes, text->count)) {
        if (errno == EAGAIN) add(&page->send_faults, 1); // it did not read
        cut(due.fd);
        return;
    }
    add(&page->chunks, count);
    add(&page->events, count + (uint32_t)(is_first && count) + 3 * (uint32_t)is_end);
}

static void append(struct text *text, const char *bytes, size_t count) {
    text->bytes = realloc(text->bytes, text->count + count);
    if (!text->bytes) fail("realloc");
    memcpy(text->bytes + text->count, bytes, count);
    text->count += count;
}

// One SSE event with these members of the choice, and after the choices, in one HTTP chunk.
static void append_event(struct text *text, const char *choices, const char *more, size_t padding) {
    char event[EVENT_BYTES_LIMIT + 512], size[16];
    int n = snprintf(event, sizeof event,
                     "data: {\"id\":\"chatcmpl-%0*d\",\"object\":\"chat.completion.chunk\","
                     "\"created\":1767225600,\"model\":\"mock\",\"choices\":[%s]%s}\n\n",
                     (int)padding, 1, choices, more);
    append(text, size, (size_t)snprintf(size, sizeof size, "%x\r\n", (unsigned)n));
    append(text, event, (size_t)n);
    append(text, "\r\n", 2);
}

static struct text build_write(int is_first, uint32_t count, int is_last, size_t event_bytes) {
    static const char HEAD[] = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                               "Cache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n";
    static const char TOKEN[] = "{\"index\":0,\"delta\":{\"content\":\" hello\"},\"logprobs\":null,"
                                "\"finish_reason\":null}";
    static const char END[] = "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n";
    struct text bare = {0}, text = {0};
    append_event(&bare, TOKEN, "", 1);
    // What is missing to the size asked for goes into the id. A chunk frame: 2 digits, 2 CR LF.
    size_t bytes = bare.count - 6, padding = event_bytes > bytes ? event_bytes - bytes + 1 : 1;
    free(bare.bytes);
    if (is_first) {
        append(&text, HEAD, sizeof HEAD - 1);
        append_event(&text,
                     "{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},"
                     "\"logprobs\":null,\"finish_reason\":null}", "", padding);
    }
    for (uint32_t i = 0; i < count; i++) append_event(&text, TOKEN, "", padding);
    if (is_last) {
        char usage[160];
        snprintf(usage, sizeof usage,
                 ",\"usage\":{\"prompt_tokens\":%u,\"completion_tokens\":%u,\"total_tokens\":%u}",
                 PROMPT_TOKENS, chunks_per_response, PROMPT_TOKENS + chunks_per_response);
        append_event(&text, "{\"index\":0,\"delta\":{},\"finish_reason\":\"length\"}", "", padding);
        append_event(&text, "", usage, padding);
        append(&text, END, sizeof END - 1);
    }
    return text;
}

static void build_writes(size_t event_bytes) {
    uint32_t whole = chunks_per_write, rest = chunks_per_response % whole;
    only_write = build_write(1, chunks_per_response, is_in_turn, event_bytes);
    first_write = build_write(1, whole, 0, event_bytes);
    next_write = build_write(0, whole, 0, event_bytes);
    last_write = build_write(0, rest ? rest : whole, is_in_turn, event_bytes);
    end_write = build_write(0, 0, 1, event_bytes);
}

static _Noreturn void run(int listener, struct page *page) {
    int poll_fd = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event events[512], want = {.events = EPOLLIN, .data.fd = listener};
    if (poll_fd < 0 || epoll_ctl(poll_fd, EPOLL_CTL_ADD, listener, &want)) fail("epoll");
    for (;;) { // ends by SIGTERM, by alarm, or with the parent
        int n = epoll_wait(poll_fd, events, 512, queued ? 0 : -1);
        for (int i = 0; i < n; i++) {
            if (events[i].data.fd == listener)
                accept_all(poll_fd, listener, page);
            else
                serve(events[i].data.fd, page);
        }
        // Few sends a turn, so that a request is read soon; more where nothing is timed.
        for (int k = is_saturating ? 64 : 4; k && queued; k--) {
            uint64_t now = now_ns(), due_ns = queue[0].at_ns + late_ns;
            if (due_ns > now) break;
            if (!is_saturating && now - due_ns >= SLIP_NS) {
                add(&page->pace_slips, 1 + (now - due_ns) / gap_ns);
                late_ns += now - due_ns;
            }
            send_next(now, page);
            store(&page->last_recv_ns, now);
        }
    }
}

int main(int argc, char **argv) {
    int port = 9473, option;
    unsigned life_s = 120;
    uint64_t rate = 60000;
    size_t event_bytes = 250;
    const char *page_path = 0, *truth_path = 0;
    while ((option = getopt(argc, argv, "S:p:r:g:f:n:k:b:T:N:t:")) != -1) switch (option) {
        case 'S': page_path = optarg; break;
        case 'p': port = atoi(optarg); break;
        case 'r': rate = strtoull(optarg, 0, 10); break;
        case 'g': is_in_turn = 0; gap_ns = strtoull(optarg, 0, 10) * 1000; break;
        case 'f': first_ns = strtoull(optarg, 0, 10) * 1000; break;
        case 'n': chunks_per_response = (uint32_t)strtoul(optarg, 0, 10); break;
        case 'k': chunks_per_write = (uint32_t)strtoul(optarg, 0, 10); break;
        case 'b': event_bytes = strtoull(optarg, 0, 10); break;
        case 'T': truth_path = optarg; break;
        case 'N': entries = strtoull(optarg, 0, 10); break;
        case 't': life_s = (unsigned)atoi(optarg); break;
        default: return 2;
        }
    if (!page_path || !life_s || !chunks_per_response || !entries || !chunks_per_write) return 2;
    if (chunks_per_write > CHUNKS_PER_WRITE_LIMIT || event_bytes > EVENT_BYTES_LIMIT) return 2;
    is_saturating = is_in_turn && !rate;
    // In turn a stream gets chunks_per_write chunks at once, so writes are as much rarer.
    if (is_in_turn && rate) gap_ns = 1000000000ull * chunks_per_write / rate;
    if (!is_saturating && !gap_ns) return 2;
    die_early(life_s);
    struct page *page = open_page(page_path);
    if (truth_path) truth = share(truth_path, entries * sizeof *truth);
    build_writes(event_bytes);
    int listener = listen_on(port);
    stamp_arrivals(listener);
    run(listener, page);
}
