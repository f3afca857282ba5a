/* An application's use of hiredis. hiredis has no pool, iterators or reconnecting, so the program implements them.
 * Usage: hiredis PORT PASSWORD PROTOCOL CONTROL; libraries.rs explains CONTROL. */

#include <hiredis.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHECK(holds) do { if (!(holds)) fail(__LINE__, #holds); } while (0)
#define CASE(name) do { name(); printf("hiredis RESP%d: %s\n", protocol, #name); } while (0)

static int port, protocol;
static const char *password, *control;

static void fail(int line, const char *what) {
    fprintf(stderr, "line %d: %s\n", line, what);
    exit(1);
}

/* A reply; the next call frees it. */
static redisReply *run(redisContext *c, const char *format, ...) {
    static redisReply *last;
    va_list words;
    if (last) freeReplyObject(last);
    va_start(words, format);
    last = redisvCommand(c, format, words);
    va_end(words);
    return last;
}

static int says(redisReply *r, const char *text) { return r && r->str && strstr(r->str, text) == r->str; }
static int counts(redisReply *r, long long n) { return r && r->type == REDIS_REPLY_INTEGER && r->integer == n; }

/* Pushes arrive among the replies, an option of hiredis. */
static void keep_push(void *unused, void *reply) {
    (void)unused;
    freeReplyObject(reply);
}

static redisContext *opened(void) {
    redisContext *c = redisConnect("127.0.0.1", port);
    if (c && c->err) {
        redisFree(c);
        return NULL;
    }
    return c;
}

static redisContext *authenticated(const char *user, const char *secret) {
    redisContext *c = opened();
    redisReply *r;
    CHECK(c);
    if (protocol == 3) {
        r = run(c, "HELLO 3 AUTH %s %s SETNAME tester", user, secret);
        CHECK(r && r->type == REDIS_REPLY_MAP && says(r->element[0], "server"));
    } else {
        CHECK(says(run(c, "AUTH %s %s", user, secret), "OK"));
        CHECK(says(run(c, "CLIENT SETNAME tester"), "OK"));
    }
    return c;
}

static redisContext *usual(void) { return authenticated("default", password); }

static void names(void) {
    redisContext *c = usual(), *reader, *other = opened();
    CHECK(says(run(c, "CLIENT GETNAME"), "tester"));
    CHECK(says(run(c, "ACL SETUSER reader on >secret ~r:* +get +hello +client|setname"), "OK"));
    reader = authenticated("reader", "secret");
    CHECK(run(reader, "GET r:1")->type == REDIS_REPLY_NIL);
    CHECK(says(run(reader, "GET k"), "NOPERM"));
    CHECK(says(run(reader, "SET r:1 v"), "NOPERM"));
    CHECK(says(run(other, "PING"), "NOAUTH"));
    CHECK(says(run(other, "AUTH default wrong"), "WRONGPASS"));
    CHECK(counts(run(c, "ACL DELUSER reader"), 1));
    redisFree(reader);
    redisFree(other);
    redisFree(c);
}

static void values(void) {
    redisContext *c = usual();
    char all[256];
    redisReply *r;
    for (int i = 0; i < 256; i++) all[i] = (char)i;
    CHECK(says(run(c, "FLUSHALL"), "OK"));
    CHECK(says(run(c, "SET %b %b EX 100", all, sizeof all, all, sizeof all), "OK"));
    r = run(c, "GET %b", all, sizeof all);
    CHECK(r->len == sizeof all && !memcmp(r->str, all, sizeof all));
    CHECK(run(c, "SET %b x NX", all, sizeof all)->type == REDIS_REPLY_NIL);
    CHECK(counts(run(c, "SADD s a b c"), 3));
    r = run(c, "SMEMBERS s");
    CHECK(r->elements == 3 && r->type == (protocol == 3 ? REDIS_REPLY_SET : REDIS_REPLY_ARRAY));
    CHECK(says(run(c, "INCR s"), "WRONGTYPE"));
    r = run(c, "CONFIG GET maxclients");
    CHECK(r->elements == 2 && r->type == (protocol == 3 ? REDIS_REPLY_MAP : REDIS_REPLY_ARRAY));
    redisFree(c);
}

static void pipelines(void) {
    redisContext *c = usual();
    redisReply *r = NULL;
    for (int i = 0; i < 1000; i++) CHECK(redisAppendCommand(c, "INCR n") == REDIS_OK);
    for (int i = 1; i <= 1000; i++) {
        CHECK(redisGetReply(c, (void **)&r) == REDIS_OK && counts(r, i));
        freeReplyObject(r);
    }
    redisFree(c);
}

static void transactions(void) {
    redisContext *c = usual(), *other = usual();
    redisReply *r;
    for (int disturbed = 1; disturbed >= 0; disturbed--) {
        CHECK(says(run(c, "WATCH w"), "OK"));
        if (disturbed) CHECK(says(run(other, "SET w 5"), "OK"));
        CHECK(says(run(c, "MULTI"), "OK"));
        CHECK(says(run(c, "INCR w"), "QUEUED"));
        CHECK(says(run(c, "GET w"), "QUEUED"));
        r = run(c, "EXEC");
        if (disturbed) CHECK(r->type == REDIS_REPLY_NIL);
        else CHECK(r->elements == 2 && counts(r->element[0], 6) && says(r->element[1], "6"));
    }
    redisFree(c);
    redisFree(other);
}

/* Appends a reply: an array in brackets, a map in braces, integers after a colon, RESP3's doubles after a comma. */
static char *draw(char *to, redisReply *r) {
    const char *ends = r->type == REDIS_REPLY_MAP ? "{}" : "[]";
    if (r->type == REDIS_REPLY_INTEGER) return to + sprintf(to, ":%lld", r->integer);
    if (r->type == REDIS_REPLY_NIL) return to + sprintf(to, "_");
    if (r->type == REDIS_REPLY_DOUBLE) return to + sprintf(to, ",%s", r->str);
    if (r->str) return to + sprintf(to, "%s", r->str);
    *to++ = ends[0];
    for (size_t i = 0; i < r->elements; i++) {
        if (i) *to++ = ' ';
        to = draw(to, r->element[i]);
    }
    return to + sprintf(to, "%c", ends[1]);
}

static int is(redisReply *r, const char *in_resp2, const char *in_resp3) {
    char drawn[1024];
    CHECK(r && draw(drawn, r));
    if (!strcmp(drawn, protocol == 3 ? in_resp3 : in_resp2)) return 1;
    fprintf(stderr, "%s\n", drawn);
    return 0;
}

static int same(redisReply *r, const char *expected) { return is(r, expected, expected); }

/* The reply of a command that waits for another client's, sent 100 ms later; the next call frees it. */
static redisReply *waits(redisContext *waiting, const char *command, redisContext *c, const char *serve) {
    struct pollfd answer = {.fd = waiting->fd, .events = POLLIN};
    static redisReply *last;
    int sent = 0;
    if (last) freeReplyObject(last);
    CHECK(redisAppendCommand(waiting, command) == REDIS_OK);
    while (!sent) CHECK(redisBufferWrite(waiting, &sent) == REDIS_OK);
    CHECK(poll(&answer, 1, 100) == 0);
    CHECK(run(c, serve)->type == REDIS_REPLY_INTEGER);
    CHECK(redisGetReply(waiting, (void **)&last) == REDIS_OK);
    return last;
}

static void hash(redisContext *c) {
    CHECK(counts(run(c, "HSET user name Ann city Rome visits 5"), 3));
    CHECK(is(run(c, "HGETALL user"), "[name Ann city Rome visits 5]", "{name Ann city Rome visits 5}"));
    CHECK(counts(run(c, "HINCRBY user visits 3"), 8));
    CHECK(counts(run(c, "HDEL user city none"), 1));
    CHECK(same(run(c, "HPEXPIRE user 20 FIELDS 2 visits none"), "[:1 :-2]"));
    CHECK(same(run(c, "HTTL user FIELDS 1 name"), "[:-1]"));
    for (int n = 0; n < 1000 && run(c, "HGETALL user")->elements > 2; n++) usleep(20000);
    CHECK(is(run(c, "HGETALL user"), "[name Ann]", "{name Ann}"));
}

static void queue(redisContext *c, redisContext *waiting) {
    CHECK(counts(run(c, "RPUSH queue a b"), 2));
    CHECK(same(run(c, "LPOP queue"), "a"));
    CHECK(same(run(c, "LRANGE queue 0 -1"), "[b]"));
    CHECK(same(run(c, "LMOVE queue working LEFT RIGHT"), "b"));
    CHECK(same(waits(waiting, "BLPOP none queue 20", c, "RPUSH queue c"), "[queue c]"));
    CHECK(same(waits(waiting, "BLMOVE queue working LEFT RIGHT 20", c, "RPUSH queue d"), "d"));
    CHECK(same(run(c, "LRANGE working 0 -1"), "[b d]"));
    CHECK(same(run(waiting, "BLPOP queue 0.1"), "_"));
    CHECK(same(run(waiting, "BLMOVE queue working LEFT RIGHT 0.1"), "_"));
}

static void leaderboard(redisContext *c, redisContext *waiting) {
    CHECK(counts(run(c, "ZADD board 1.5 Ann 2 Bob inf Cid"), 3));
    CHECK(is(run(c, "ZINCRBY board 2.25 Ann"), "3.75", ",3.75"));
    CHECK(is(run(c, "ZRANGE board 0 -1 WITHSCORES"), "[Bob 2 Ann 3.75 Cid inf]", "[[Bob ,2] [Ann ,3.75] [Cid ,inf]]"));
    CHECK(same(run(c, "ZREVRANK board none"), "_"));
    CHECK(is(run(c, "ZREVRANK board Ann WITHSCORE"), "[:1 3.75]", "[:1 ,3.75]"));
    CHECK(is(run(c, "ZRANGEBYSCORE board (2 +inf WITHSCORES LIMIT 0 1"), "[Ann 3.75]", "[[Ann ,3.75]]"));
    CHECK(is(run(c, "ZPOPMIN board"), "[Bob 2]", "[Bob ,2]"));
    CHECK(is(run(c, "ZPOPMIN board 2"), "[Ann 3.75 Cid inf]", "[[Ann ,3.75] [Cid ,inf]]"));
    CHECK(is(waits(waiting, "BZPOPMIN waited 20", c, "ZADD waited -0.5 Eve"), "[waited Eve -0.5]", "[waited Eve ,-0.5]"));
    CHECK(same(run(waiting, "BZPOPMIN waited 0.1"), "_"));
}

static void map(redisContext *c) {
    CHECK(counts(run(c, "GEOADD places 13.361389 38.115556 Palermo 15.087269 37.502669 Catania"), 2));
    CHECK(is(run(c, "GEOSEARCH places FROMLONLAT 15 37 BYRADIUS 100 km WITHDIST WITHHASH WITHCOORD"),
        "[[Catania 56.4413 :3479447370796909 [15.087267458438873 37.50266842333162]]]",
        "[[Catania 56.4413 :3479447370796909 [,15.087267458438873 ,37.50266842333162]]]"));
}

static void collections(void) {
    redisContext *c = usual(), *waiting = usual();
    CHECK(says(run(c, "FLUSHALL"), "OK"));
    hash(c);
    queue(c, waiting);
    leaderboard(c, waiting);
    map(c);
    redisFree(waiting);
    redisFree(c);
}

/* Walks a cursor to its end; returns the number of items. */
static size_t walk(redisContext *c, const char *format) {
    char cursor[32] = "0";
    size_t seen = 0;
    do {
        redisReply *r = run(c, format, cursor);
        CHECK(r && r->elements == 2 && r->element[0]->len < sizeof cursor);
        seen += r->element[1]->elements;
        strcpy(cursor, r->element[0]->str);
    } while (strcmp(cursor, "0"));
    return seen;
}

static void scans(void) {
    redisContext *c = usual();
    CHECK(says(run(c, "FLUSHALL"), "OK"));
    for (int i = 0; i < 500; i++) CHECK(says(run(c, "SET key:%d x", i), "OK") && counts(run(c, "SADD big %d", i), 1));
    CHECK(walk(c, "SCAN %s MATCH key:* COUNT 100") == 500);
    CHECK(walk(c, "SSCAN big %s COUNT 50") == 500);
    redisFree(c);
}

/* The next message or confirmation; in RESP3 it is a push. */
static void hears(redisContext *c, size_t words, const char *kind, const char *text) {
    redisReply *r = NULL;
    CHECK(redisGetReply(c, (void **)&r) == REDIS_OK && r->elements == words);
    CHECK(r->type == (protocol == 3 ? REDIS_REPLY_PUSH : REDIS_REPLY_ARRAY));
    CHECK(says(r->element[0], kind) && says(r->element[1], text));
    freeReplyObject(r);
}

static redisContext *listener(void) {
    redisContext *c = usual();
    redisSetPushCallback(c, NULL); /* so that redisGetReply returns pushes */
    CHECK(redisAppendCommand(c, "SUBSCRIBE news") == REDIS_OK);
    CHECK(redisAppendCommand(c, "PSUBSCRIBE n*") == REDIS_OK);
    hears(c, 3, "subscribe", "news");
    hears(c, 3, "psubscribe", "n*");
    return c;
}

static void messages(void) {
    redisContext *reader = listener(), *c = usual();
    CHECK(counts(run(c, "PUBLISH news hello"), 2));
    hears(reader, 3, "message", "news");
    hears(reader, 4, "pmessage", "n*");
    if (protocol == 3) { /* a RESP3 connection may listen and ask */
        redisSetPushCallback(reader, keep_push);
        CHECK(says(run(reader, "PING"), "PONG"));
    }
    redisFree(reader);
    redisFree(c);
}

static void starting_again(void) {
    redisContext *c = usual();
    char path[4096];
    struct stat there;
    CHECK(says(run(c, "SET kept 1"), "OK"));
    snprintf(path, sizeof path, "%s/restart", control);
    fclose(fopen(path, "w"));
    snprintf(path, sizeof path, "%s/restarted", control);
    for (int n = 0; n < 2000 && stat(path, &there); n++) usleep(20000);
    CHECK(run(c, "GET kept") == NULL && c->err);
    CHECK(redisReconnect(c) == REDIS_OK);
    CHECK(says(run(c, "AUTH %s", password), "OK"));
    CHECK(says(run(c, "GET kept"), "1"));
    redisFree(listener());
    redisFree(c);
}

int main(int argc, char **argv) {
    CHECK(argc == 5);
    port = atoi(argv[1]), password = argv[2], protocol = atoi(argv[3]), control = argv[4];
    alarm(230);
    CASE(names);
    CASE(values);
    CASE(pipelines);
    CASE(transactions);
    CASE(collections);
    CASE(scans);
    CASE(messages);
    CASE(starting_again);
    return 0;
}
