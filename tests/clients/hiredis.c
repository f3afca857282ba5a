/* An application's use of hiredis. hiredis has no pool, iterators or reconnecting, so the program implements them.
 * Usage: hiredis PORT PASSWORD PROTOCOL CONTROL; libraries.rs explains CONTROL. */

#include <hiredis.h>
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
    CASE(scans);
    CASE(messages);
    CASE(starting_again);
    return 0;
}
