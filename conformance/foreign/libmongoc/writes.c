/* libmongoc writing one document after another, until standard input ends.
 *
 * Prints the time of each acknowledged write, in seconds since 1970, as `first_writes.py` reads it.
 * The client is one of a pool, so that monitors run beside it.
 */

#include <mongoc/mongoc.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* Returns whether standard input has ended. */
static bool has_ended(void) {
  char byte;
  struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
  return poll(&input, 1, 2) > 0 && read(STDIN_FILENO, &byte, 1) <= 0;
}

int main(void) {
  bson_error_t error;
  mongoc_init();
  mongoc_uri_t *uri = mongoc_uri_new_with_error(getenv("SDAM_URI"), &error);
  if (!uri) {
    fprintf(stderr, "libmongoc: %s\n", error.message);
    return 1;
  }
  mongoc_client_pool_t *pool = mongoc_client_pool_new(uri);
  mongoc_client_t *client = mongoc_client_pool_pop(pool);
  mongoc_collection_t *things = mongoc_client_get_collection(client, "app", "libmongoc");
  while (!has_ended()) {
    bson_t *document = BCON_NEW("at", BCON_INT32(1));
    if (mongoc_collection_insert_one(things, document, NULL, NULL, &error)) {
      struct timespec now;
      clock_gettime(CLOCK_REALTIME, &now);
      printf("%lld.%06ld\n", (long long)now.tv_sec, now.tv_nsec / 1000);
      fflush(stdout);
    } else {
      fprintf(stderr, "libmongoc: %s\n", error.message);
    }
    bson_destroy(document);
  }
  mongoc_collection_destroy(things);
  mongoc_client_pool_push(pool, client);
  mongoc_client_pool_destroy(pool);
  mongoc_uri_destroy(uri);
  mongoc_cleanup();
  return 0;
}
