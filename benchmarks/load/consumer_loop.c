/* Consumers in a closed loop, each with an incremental fetch session (KIP-227) over its own partitions of one topic.
 *
 *   consumer_loop HOST PORT FRAMES_FILE TOPIC --consumers C --partitions P --seconds S
 *                 [--append-every N] [--wait-ms W --gap-us G]
 *
 * Consumer i reads partitions i*P to i*P+P-1. It begins a session at the high watermarks; after that each request has
 * the next epoch and the next correlation id, and names the partitions whose offset has moved and no others, as a
 * consumer's does. FRAMES_FILE holds one Produce request for each partition, in order, for appends on a connection of
 * their own: one after every N answers, to one of the consumer's partitions after the other.
 *
 * With --wait-ms all consumers wait at the end of the log; after G microseconds one append for each is sent, and the
 * time counted is the one from the append to the consumer's answer. Prints `ready`, and in the end one line of JSON. */
#include "loop.h"

#define BUFFER_BYTES (256 * 1024)
#define MAX_PARTITIONS 64
#define MAX_REQUEST_BYTES 8192
#define FETCH_KEY 1
#define FETCH_VERSION 8
#define FETCH_MAX_BYTES (50 * 1024 * 1024) /* as a consumer's fetch.max.bytes and max.partition.fetch.bytes are */
#define PARTITION_MAX_BYTES (1024 * 1024)
#define BATCH_HEADER_BYTES 61 /* of magic 2: base offset at 0, length behind it at 8, last offset delta at 23 */
#define CLIENT_ID "benchmark"

struct channel { /* a connection, and what has arrived of the next answer */
    int fd;
    size_t have;
    char data[BUFFER_BYTES];
};

struct consumer {
    struct channel fetches, appends;
    int32_t session_id, epoch, correlation_id, first_partition;
    int64_t offset[MAX_PARTITIONS];
    char moved[MAX_PARTITIONS];
    unsigned since_append, next_append;
    uint64_t began_ns; /* when its request was sent, or the append that wakes it */
};

static const char *topic;
static int32_t partitions, wait_ms;
static uint64_t records_answered;

static void give_up(const char *what, long long number) {
    fprintf(stderr, "%s: %lld\n", what, number);
    exit(1);
}

/* -- writing and reading numbers as Kafka has them ----------------------------------------------------------------- */

static char *put(char *at, int64_t value, int size) {
    for (int i = size - 1; i >= 0; i--) *at++ = (char)(value >> (8 * i));
    return at;
}

static char *put_string(char *at, const char *text) {
    size_t size = strlen(text);
    at = put(at, (int64_t)size, 2);
    memcpy(at, text, size);
    return at + size;
}

static int64_t get(const char **at, int size) {
    uint64_t value = (**at & 0x80) ? ~(uint64_t)0 : 0;
    for (int i = 0; i < size; i++) value = value << 8 | (uint8_t)*(*at)++;
    return (int64_t)value;
}

static int64_t number_at(const char *at, int size) {
    return get(&at, size);
}

/* -- requests ------------------------------------------------------------------------------------------------------ */

static void send_fetch(struct consumer *c, int32_t most_bytes) {
    char request[MAX_REQUEST_BYTES], *at = request + 4, *count_at;
    int32_t named = 0;
    at = put(put(put(at, FETCH_KEY, 2), FETCH_VERSION, 2), ++c->correlation_id, 4);
    at = put_string(at, CLIENT_ID);
    at = put(put(put(at, -1, 4), wait_ms, 4), 1, 4);
    at = put(put(at, FETCH_MAX_BYTES, 4), 0, 1);
    at = put(put(at, c->session_id, 4), c->epoch, 4);
    for (int32_t i = 0; i < partitions; i++) named += c->moved[i];
    at = put(at, named ? 1 : 0, 4);
    if (named) {
        at = put_string(at, topic);
        count_at = at;
        at = put(count_at, named, 4);
        for (int32_t i = 0; i < partitions; i++) {
            if (!c->moved[i]) continue;
            at = put(put(put(put(at, c->first_partition + i, 4), c->offset[i], 8), -1, 8), most_bytes, 4);
            c->moved[i] = 0;
        }
    }
    at = put(at, 0, 4); /* partitions to forget */
    put(request, at - request - 4, 4);
    c->began_ns = now_ns();
    send_all(c->fetches.fd, request, (size_t)(at - request));
}

static void send_append(struct consumer *c) {
    unsigned frame = (unsigned)c->first_partition + c->next_append;
    c->next_append = (c->next_append + 1) % (unsigned)partitions;
    c->since_append = 0;
    send_all(c->appends.fd, frames + frame_at[frame], frame_bytes[frame]);
}

/* -- answers ------------------------------------------------------------------------------------------------------- */

/* The next answer without its size, or NULL when it has not arrived yet; `drop` it when it has been read. */
static const char *next_answer(struct channel *channel, int flags) {
    while (channel->have < 4 || channel->have < 4 + (size_t)number_at(channel->data, 4)) {
        ssize_t n = recv(channel->fd, channel->data + channel->have, BUFFER_BYTES - channel->have, flags);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return NULL;
        if (n <= 0) give_up("the server closed a connection, or answered with too much; answers", (long long)answers);
        channel->have += (size_t)n;
        received_bytes += (uint64_t)n;
    }
    return channel->data + 4;
}

static void drop(struct channel *channel) {
    size_t size = 4 + (size_t)number_at(channel->data, 4);
    channel->have -= size;
    memmove(channel->data, channel->data + size, channel->have);
}

static int64_t offset_behind(const char *records, int64_t size, int64_t offset) {
    while (size >= BATCH_HEADER_BYTES) {
        int64_t batch_bytes = 12 + number_at(records + 8, 4);
        if (batch_bytes > size) break; /* only a part of it has come */
        offset = number_at(records, 8) + number_at(records + 23, 4) + 1;
        records += batch_bytes;
        size -= batch_bytes;
        records_answered++;
    }
    return offset;
}

/* Move the consumer to where its answer ends; to the high watermarks when the session has just begun. */
static void take_fetch(struct consumer *c, const char *at) {
    int is_first = !c->session_id;
    if (get(&at, 4) != c->correlation_id) give_up("an answer is not the one that is due", c->correlation_id);
    get(&at, 4);
    int64_t error = get(&at, 2);
    if (error) give_up("a fetch was answered with error", error);
    int64_t session_id = get(&at, 4);
    if (!session_id) give_up("no fetch session was given; epoch", c->epoch);
    c->session_id = (int32_t)session_id;
    c->epoch++;
    for (int64_t topics = get(&at, 4); topics > 0; topics--) {
        int64_t name_bytes = get(&at, 2);
        at += name_bytes;
        for (int64_t rows = get(&at, 4); rows > 0; rows--) {
            int64_t i = get(&at, 4) - c->first_partition;
            if ((error = get(&at, 2))) give_up("a partition was answered with error", error);
            int64_t high_watermark = get(&at, 8);
            get(&at, 8);
            get(&at, 8);
            int64_t aborted = get(&at, 4);
            if (aborted > 0) at += 16 * aborted;
            int64_t size = get(&at, 4);
            int64_t behind = is_first ? high_watermark : offset_behind(at, size, c->offset[i]);
            c->moved[i] = is_first || behind != c->offset[i];
            c->offset[i] = behind;
            if (size > 0) at += size;
        }
    }
}

static void take_append(const char *at) {
    at += 4 + 4;
    int64_t name_bytes = get(&at, 2);
    at += name_bytes + 4 + 4;
    int64_t error = get(&at, 2);
    if (error) give_up("an append was answered with error", error);
}

/* -- the loop ------------------------------------------------------------------------------------------------------ */

static void begin(struct consumer *c) {
    for (int32_t i = 0; i < partitions; i++) c->moved[i] = 1;
    for (int32_t most_bytes = 1; most_bytes; most_bytes = most_bytes == 1 ? PARTITION_MAX_BYTES : 0) {
        send_fetch(c, most_bytes);
        take_fetch(c, next_answer(&c->fetches, 0));
        drop(&c->fetches);
    }
}

/* Take all that has arrived; how many consumers have been answered. */
static unsigned take_all(int poller, int timeout_ms, unsigned append_every) {
    struct epoll_event events[128];
    unsigned answered = 0;
    const char *answer;
    int n = epoll_wait(poller, events, 128, timeout_ms);
    for (int k = 0; k < n; k++) {
        struct consumer *c = (struct consumer *)(events[k].data.u64 & ~(uint64_t)1);
        if (events[k].data.u64 & 1) {
            while ((answer = next_answer(&c->appends, MSG_DONTWAIT))) {
                take_append(answer);
                drop(&c->appends);
            }
        } else if ((answer = next_answer(&c->fetches, MSG_DONTWAIT))) {
            count_time(now_ns() - c->began_ns);
            take_fetch(c, answer);
            drop(&c->fetches);
            answered++;
            if (wait_ms) continue;
            if (append_every && ++c->since_append == append_every) send_append(c);
            send_fetch(c, PARTITION_MAX_BYTES);
        }
    }
    return answered;
}

static void watch(int poller, int fd, struct consumer *c, uint64_t is_append) {
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = (uint64_t)c | is_append};
    if (epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event)) fail("epoll_ctl");
}

int main(int count, char **values) {
    if (count < 5) {
        fprintf(stderr, "consumer_loop HOST PORT FRAMES_FILE TOPIC [--consumers C] [--partitions P] [--seconds S] "
                        "[--append-every N] [--wait-ms W] [--gap-us G]\n");
        return 2;
    }
    unsigned consumers = (unsigned)argument(count, values, "--consumers", 1), pause_us = 0;
    unsigned append_every = (unsigned)argument(count, values, "--append-every", 0);
    unsigned gap_us = (unsigned)argument(count, values, "--gap-us", 1000);
    int32_t longest_wait_ms = (int32_t)argument(count, values, "--wait-ms", 0);
    double seconds = argument(count, values, "--seconds", 10);
    partitions = (int32_t)argument(count, values, "--partitions", 1);
    topic = values[4];
    read_frames(values[3]);
    if (!consumers || partitions < 1 || partitions > MAX_PARTITIONS || frame_count < consumers * (unsigned)partitions)
        return 2;
    start_counting();
    struct consumer *all = calloc(consumers, sizeof *all);
    int poller = epoll_create1(EPOLL_CLOEXEC);
    if (!all || poller < 0) fail("memory");
    for (unsigned i = 0; i < consumers; i++) {
        all[i].first_partition = (int32_t)i * partitions;
        all[i].fetches.fd = connect_to(values[1], atoi(values[2]), &pause_us);
        all[i].appends.fd = connect_to(values[1], atoi(values[2]), &pause_us);
        begin(&all[i]);
        watch(poller, all[i].fetches.fd, &all[i], 0);
        watch(poller, all[i].appends.fd, &all[i], 1);
    }
    ready();
    wait_ms = longest_wait_ms;
    received_bytes = records_answered = 0;
    struct timespec gap = {.tv_sec = gap_us / 1000000, .tv_nsec = (long)(gap_us % 1000000) * 1000};
    uint64_t start = now_ns(), end = start + (uint64_t)(seconds * 1e9);
    if (!wait_ms)
        for (unsigned i = 0; i < consumers; i++) send_fetch(&all[i], PARTITION_MAX_BYTES);
    while (now_ns() < end) {
        if (!wait_ms) {
            take_all(poller, 100, append_every);
            continue;
        }
        for (unsigned i = 0; i < consumers; i++) send_fetch(&all[i], PARTITION_MAX_BYTES);
        nanosleep(&gap, NULL);
        for (unsigned i = 0; i < consumers; i++) {
            all[i].began_ns = now_ns();
            send_append(&all[i]);
        }
        for (unsigned answered = 0; answered < consumers;) answered += take_all(poller, wait_ms, 0);
    }
    if (!records_answered && (append_every || wait_ms)) give_up("no consumer was given records; answers", (long long)answers);
    print_result(start);
    return 0;
}
