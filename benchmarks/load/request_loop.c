/* A closed loop of Kafka requests: C connections, D requests in flight on each, frames sent as they are.
 *
 *   request_loop HOST PORT FRAMES_FILE --connections C --depth D --seconds S --requests R --gap-us G
 *
 * FRAMES_FILE holds whole frames (size in front), sent in rotation. Prints `ready` once every connection has sent
 * its first request, and in the end one line of JSON. Ends after S seconds or R answers, whichever comes first.
 * With --gap-us a connection waits that long between an answer and its next request (one connection only).
 * With no frames it only holds the connections open for S seconds. request_loop.py does the same in Python. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define BUFFER_BYTES (256 * 1024)
#define MAX_DEPTH 64
#define MAX_FRAMES 4096
#define HISTOGRAM_US 1000000 /* one bucket a microsecond; slower answers share the last */
#define SLOW_US 100000
#define SYN_LOST_NS 200000000 /* a server that accepts slower than we connect: Kafka queues 50 */

struct connection {
    int fd;
    uint32_t header_seen, header; /* of the 4 bytes that say an answer's size */
    int64_t body_left;
    uint64_t sent_at_ns[MAX_DEPTH];
    unsigned first, in_flight;
};

static char buffer[BUFFER_BYTES];
static char *frames;
static size_t frame_at[MAX_FRAMES], frame_bytes[MAX_FRAMES];
static unsigned frame_count, next_frame;
static uint32_t *histogram;
static uint64_t answers, received_bytes, max_ns, slow;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void read_frames(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) fail(path);
    fseek(file, 0, SEEK_END);
    size_t size = (size_t)ftell(file), at = 0;
    rewind(file);
    frames = malloc(size + 1);
    if (!frames || fread(frames, 1, size, file) != size) fail(path);
    fclose(file);
    while (at + 4 <= size && frame_count < MAX_FRAMES) {
        uint32_t length;
        memcpy(&length, frames + at, 4);
        frame_at[frame_count] = at;
        frame_bytes[frame_count] = 4 + ntohl(length);
        at += frame_bytes[frame_count++];
    }
    if (at != size) {
        fprintf(stderr, "%s does not end with a whole frame\n", path);
        exit(1);
    }
}

static int connect_to(const char *host, int port, unsigned *pause_us) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct linger no_time_wait = {.l_onoff = 1, .l_linger = 0}; /* or ten thousand ports rest for a minute */
    int yes = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) fail("socket");
    if (inet_pton(AF_INET, host, &address.sin_addr) != 1) fail(host);
    uint64_t start = now_ns();
    if (connect(fd, (struct sockaddr *)&address, sizeof address)) fail("connect");
    if (now_ns() - start > SYN_LOST_NS && *pause_us < 2000) *pause_us = *pause_us ? 2 * *pause_us : 50;
    if (*pause_us) usleep(*pause_us);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &no_time_wait, sizeof no_time_wait);
    return fd;
}

static void send_one(struct connection *c) {
    size_t done = 0, total = frame_bytes[next_frame];
    const char *frame = frames + frame_at[next_frame];
    next_frame = (next_frame + 1) % frame_count;
    c->sent_at_ns[(c->first + c->in_flight++) % MAX_DEPTH] = now_ns();
    while (done < total) {
        ssize_t n = send(c->fd, frame + done, total - done, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) fail("send");
        done += (size_t)n;
    }
}

static void count_answer(struct connection *c) {
    uint64_t took = now_ns() - c->sent_at_ns[c->first];
    uint64_t us = took / 1000;
    c->first = (c->first + 1) % MAX_DEPTH;
    c->in_flight--;
    answers++;
    histogram[us < HISTOGRAM_US ? us : HISTOGRAM_US]++;
    if (took > max_ns) max_ns = took;
    if (us > SLOW_US) slow++;
}

/* Take what has arrived; the number of answers that ended with it. */
static unsigned receive(struct connection *c) {
    unsigned ended = 0;
    ssize_t n = recv(c->fd, buffer, sizeof buffer, 0);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return 0;
    if (n <= 0) {
        fprintf(stderr, "the server closed a connection after %llu answers\n", (unsigned long long)answers);
        exit(1);
    }
    received_bytes += (uint64_t)n;
    for (ssize_t at = 0; at < n;) {
        if (c->header_seen < 4) {
            c->header = c->header << 8 | (uint8_t)buffer[at++];
            if (++c->header_seen == 4) c->body_left = c->header;
            if (c->header_seen < 4 || c->body_left) continue;
        } else {
            int64_t step = n - at < c->body_left ? n - at : c->body_left;
            at += step;
            c->body_left -= step;
        }
        if (c->body_left == 0) {
            c->header_seen = c->header = 0;
            count_answer(c);
            ended++;
        }
    }
    return ended;
}

static double percentile_us(double share) {
    uint64_t wanted = (uint64_t)(share * (double)answers), seen = 0;
    for (unsigned us = 0; us <= HISTOGRAM_US; us++) {
        seen += histogram[us];
        if (seen > wanted) return us;
    }
    return 0;
}

static void ready(void) {
    puts("ready");
    fflush(stdout);
}

static void loop(struct connection *all, unsigned count, unsigned depth, uint64_t end_ns, uint64_t limit) {
    struct epoll_event events[512];
    int poller = epoll_create1(EPOLL_CLOEXEC);
    for (unsigned i = 0; i < count; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &all[i]};
        if (epoll_ctl(poller, EPOLL_CTL_ADD, all[i].fd, &event)) fail("epoll_ctl");
        for (unsigned k = 0; frame_count && k < depth; k++) send_one(&all[i]);
    }
    ready();
    for (uint64_t now; answers < limit && (now = now_ns()) < end_ns;) {
        int n = epoll_wait(poller, events, 512, (int)((end_ns - now) / 1000000) + 1);
        for (int i = 0; i < n; i++) {
            struct connection *c = events[i].data.ptr;
            for (unsigned ended = receive(c); ended; ended--) send_one(c);
        }
    }
}

static void paced(struct connection *c, unsigned gap_us, uint64_t end_ns, uint64_t limit) {
    struct timespec gap = {.tv_sec = gap_us / 1000000, .tv_nsec = (long)(gap_us % 1000000) * 1000};
    ready();
    while (answers < limit && now_ns() < end_ns) {
        send_one(c);
        while (!receive(c)) {
        }
        nanosleep(&gap, NULL);
    }
}

static double argument(int count, char **values, const char *name, double otherwise) {
    for (int i = 4; i + 1 < count; i++)
        if (!strcmp(values[i], name)) return atof(values[i + 1]);
    return otherwise;
}

int main(int count, char **values) {
    if (count < 4) {
        fprintf(stderr, "request_loop HOST PORT FRAMES_FILE [--connections C] [--depth D] [--seconds S] "
                        "[--requests R] [--gap-us G]\n");
        return 2;
    }
    unsigned connections = (unsigned)argument(count, values, "--connections", 1);
    unsigned depth = (unsigned)argument(count, values, "--depth", 1);
    unsigned gap_us = (unsigned)argument(count, values, "--gap-us", 0);
    uint64_t limit = (uint64_t)argument(count, values, "--requests", 1e15);
    double seconds = argument(count, values, "--seconds", 10);
    if (!connections || !depth || depth > MAX_DEPTH) return 2;
    read_frames(values[3]);
    histogram = calloc(HISTOGRAM_US + 1, sizeof *histogram);
    struct connection *all = calloc(connections, sizeof *all);
    if (!histogram || !all) fail("memory");
    unsigned pause_us = 0;
    for (unsigned i = 0; i < connections; i++) all[i].fd = connect_to(values[1], atoi(values[2]), &pause_us);

    uint64_t start = now_ns(), end = start + (uint64_t)(seconds * 1e9);
    if (gap_us)
        paced(&all[0], gap_us, end, limit);
    else
        loop(all, connections, depth, end, limit);
    double took = (double)(now_ns() - start) / 1e9;
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    double cpu = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                 (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
    printf("{\"requests\": %llu, \"seconds\": %.6f, \"bytes\": %llu, \"p50_us\": %.0f, \"p99_us\": %.0f, "
           "\"max_us\": %.0f, \"over_100_ms\": %llu, \"client_cpu_seconds\": %.3f}\n",
           (unsigned long long)answers, took, (unsigned long long)received_bytes, percentile_us(0.5),
           percentile_us(0.99), (double)max_ns / 1e3, (unsigned long long)slow, cpu);
    return 0;
}
