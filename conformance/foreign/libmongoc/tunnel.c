/* libmongoc through `sdam tunnel`: it sees a whole set, and follows failovers without a lost write.
 *
 * SDAM_URI names the set; what is printed and read is what `sdam-conformance tunnel` expects. The
 * client is one of a pool, so that monitors run beside it.
 */

#include <mongoc/mongoc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIMIT_US (60 * 1000 * 1000LL)

static mongoc_client_t *client;
static mongoc_collection_t *things;
static int written = 0;
static bson_error_t error;

static void fail(const char *what) {
  fprintf(stderr, "libmongoc: %s: %s\n", what, error.message);
  exit(1);
}

/* Writes a document; one that may have been written is not counted. */
static bool write_one(void) {
  bson_t *selector = BCON_NEW("_id", BCON_INT32(written));
  bson_t *options = BCON_NEW("upsert", BCON_BOOL(true));
  bool done = mongoc_collection_replace_one(things, selector, selector, options, NULL, &error);
  bson_destroy(selector);
  bson_destroy(options);
  written += done;
  return done;
}

/* Counts the documents that a read preference finds. */
static int count(mongoc_read_mode_t mode) {
  bson_t all = BSON_INITIALIZER;
  const bson_t *document;
  mongoc_read_prefs_t *preference = mongoc_read_prefs_new(mode);
  mongoc_cursor_t *cursor = mongoc_collection_find_with_opts(things, &all, NULL, preference);
  int found = 0;
  while (mongoc_cursor_next(cursor, &document)) found++;
  if (mongoc_cursor_error(cursor, &error)) found = -1;
  mongoc_cursor_destroy(cursor);
  mongoc_read_prefs_destroy(preference);
  return found;
}

/* Copies the address of the primary, if there is one. */
static bool find_primary(char *name, size_t size) {
  mongoc_server_description_t *server = mongoc_client_select_server(client, true, NULL, &error);
  if (!server) return false;
  bool is_primary = strcmp(mongoc_server_description_type(server), "RSPrimary") == 0;
  snprintf(name, size, "%s", mongoc_server_description_host(server)->host_and_port);
  mongoc_server_description_destroy(server);
  return is_primary;
}

/* Returns whether there are a primary and two secondaries, all of them at ports of this machine. */
static bool is_whole(void) {
  char primary[300];
  size_t size, members = 0;
  if (!find_primary(primary, sizeof primary)) return false;
  mongoc_server_description_t **servers = mongoc_client_get_server_descriptions(client, &size);
  for (size_t i = 0; i < size; i++) {
    const char *type = mongoc_server_description_type(servers[i]);
    if (strncmp(mongoc_server_description_host(servers[i])->host_and_port, "127.0.0.1:", 10)) {
      fail("a member is elsewhere");
    }
    members += !strcmp(type, "RSPrimary") || !strcmp(type, "RSSecondary");
  }
  mongoc_server_descriptions_destroy_all(servers, size);
  return size == 3 && members == 3;
}

static bool has_read(void) { return count(MONGOC_READ_SECONDARY) == 1; }

static void wait_for(const char *what, bool (*attempt)(void)) {
  for (int64_t end = bson_get_monotonic_time() + LIMIT_US; bson_get_monotonic_time() < end;) {
    if (attempt()) return;
    usleep(20 * 1000);
  }
  fail(what);
}

int main(void) {
  char line[100], primary[300], before[300];
  mongoc_init();
  mongoc_uri_t *uri = mongoc_uri_new_with_error(getenv("SDAM_URI"), &error);
  if (!uri) fail("the connection string");
  mongoc_uri_set_option_as_int32(uri, "heartbeatFrequencyMS", 500);
  mongoc_uri_set_option_as_int32(uri, "serverSelectionTimeoutMS", 5000);
  mongoc_uri_set_compressors(uri, "zlib");
  mongoc_client_pool_t *pool = mongoc_client_pool_new(uri);
  client = mongoc_client_pool_pop(pool);
  things = mongoc_client_get_collection(client, "app", "libmongoc");
  mongoc_write_concern_t *majority = mongoc_write_concern_new();
  mongoc_write_concern_set_w(majority, MONGOC_WRITE_CONCERN_W_MAJORITY);
  mongoc_collection_set_write_concern(things, majority);

  wait_for("whole set", is_whole);
  wait_for("write", write_one);
  wait_for("read from a secondary", has_read);
  if (!find_primary(before, sizeof before)) fail("primary");
  puts("ready");
  fflush(stdout);
  while (fgets(line, sizeof line, stdin)) {
    int64_t end = bson_get_monotonic_time() + LIMIT_US;
    /* The old one may still be taken for the primary. */
    while (!find_primary(primary, sizeof primary) || !strcmp(primary, before)) {
      if (bson_get_monotonic_time() > end) fail("other primary");
      write_one();
      usleep(20 * 1000);
    }
    wait_for("write to it", write_one);
    strcpy(before, primary);
    printf("followed to %s\n", before);
    fflush(stdout);
  }
  if (count(MONGOC_READ_PRIMARY) < written) fail("a write is lost");

  mongoc_write_concern_destroy(majority);
  mongoc_collection_destroy(things);
  mongoc_client_pool_push(pool, client);
  mongoc_client_pool_destroy(pool);
  mongoc_uri_destroy(uri);
  mongoc_cleanup();
  return 0;
}
