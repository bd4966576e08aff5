/* hiredis against fbfkv: see clients_test.go for what the steps are for.
 *
 *   gcc -o hiredis hiredis.c -lhiredis && ./hiredis host:port 2
 *
 * hiredis neither reconnects nor retries, so this is the pattern by hand. */
#include <assert.h>
#include <hiredis/hiredis.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static char *host;
static int port;

/* dial returns a connection, however long that takes. */
static redisContext *dial(void) {
    for (;;) {
        struct timeval patience = {2, 0};
        redisContext *c = redisConnectWithTimeout(host, port, patience);
        /* Without a timeout of the socket it waits for ever for a server that is silent. */
        if (c != NULL && c->err == 0 && redisSetTimeout(c, patience) == REDIS_OK) return c;
        if (c != NULL) redisFree(c);
        nanosleep(&(struct timespec){0, 20 * 1000 * 1000}, NULL);
    }
}

/* increment adds 1 to a counter exactly once, however often the connection
 * breaks, and returns the counter. The opid is the process and a number: made
 * before the first try, and the same in each. */
static long long increment(redisContext **c, const char *key, long long number) {
    for (;;) {
        redisReply *r = redisCommand(*c, "CINCRBY %s %d-%lld 1", key, (int)getpid(), number);
        if (r == NULL) { /* the increment may or may not have been applied */
            redisFree(*c);
            *c = dial();
            continue;
        }
        if (r->type != REDIS_REPLY_INTEGER) {
            fprintf(stderr, "CINCRBY %s: %s\n", key, r->str);
            exit(1);
        }
        long long value = r->integer;
        freeReplyObject(r);
        return value;
    }
}

/* ask sends a command and ends the program if the reply is of another type. */
static redisReply *ask(redisContext *c, int type, const char *command) {
    redisReply *r = redisCommand(c, command);
    if (r == NULL || r->type != type) {
        fprintf(stderr, "%s: another reply than expected: %s\n", command, r == NULL ? c->errstr : r->str);
        exit(1);
    }
    return r;
}

int main(int argc, char **argv) {
    assert(argc >= 3);
    char *colon = strrchr(argv[1], ':');
    *colon = 0;
    host = argv[1];
    port = atoi(colon + 1);
    redisContext *c = dial();

    freeReplyObject(ask(c, REDIS_REPLY_STATUS, "CLIENT SETNAME hiredis"));
    redisReply *r = ask(c, REDIS_REPLY_STRING, "CLIENT GETNAME");
    assert(strcmp(r->str, "hiredis") == 0);
    freeReplyObject(r);

    for (int i = 0; i < 100; i++) redisAppendCommand(c, "CINCRBY pipeline op-%d 1", i);
    for (int i = 0; i < 100; i++) {
        assert(redisGetReply(c, (void **)&r) == REDIS_OK && r->integer == i + 1);
        freeReplyObject(r);
    }

    freeReplyObject(ask(c, REDIS_REPLY_STATUS, "MULTI"));
    freeReplyObject(ask(c, REDIS_REPLY_STATUS, "CINCRBY transaction op 5"));
    freeReplyObject(ask(c, REDIS_REPLY_STATUS, "GET transaction"));
    r = ask(c, REDIS_REPLY_ARRAY, "EXEC");
    assert(r->elements == 2 && r->element[0]->integer == 5 && strcmp(r->element[1]->str, "5") == 0);
    freeReplyObject(r);

    freeReplyObject(ask(c, REDIS_REPLY_NIL, "CSEEN transaction other"));
    r = ask(c, REDIS_REPLY_ERROR, "CINCRBY transaction op 6");
    assert(strncmp(r->str, "MISMATCH", 8) == 0);
    freeReplyObject(r);
    freeReplyObject(ask(c, REDIS_REPLY_INTEGER, "FBF.ADD filter item"));

    puts("ready");
    fflush(stdout);
    long long count = 0;
    struct pollfd input = {STDIN_FILENO, POLLIN, 0};
    while (poll(&input, 1, 5) == 0) { /* until standard input is closed; others need the processor */
        long long value = increment(&c, "load:0", count++);
        if (value != count) {
            fprintf(stderr, "load:0 is %lld after %lld increments\n", value, count);
            return 1;
        }
    }
    printf("applied %lld\n", count);
    redisFree(c);
    return 0;
}
