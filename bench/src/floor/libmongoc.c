/* The first ping of a client of libmongoc: prints the milliseconds from its creation to the reply. */

#include <mongoc/mongoc.h>
#include <stdio.h>
#include <time.h>

int main(int argc, char **argv) {
  struct timespec begun, done;
  bson_error_t error;
  if (argc != 2) return 2;
  clock_gettime(CLOCK_MONOTONIC, &begun);
  mongoc_init();
  mongoc_client_t *client = mongoc_client_new(argv[1]);
  bson_t *ping = BCON_NEW("ping", BCON_INT32(1));
  if (!client || !mongoc_client_command_simple(client, "admin", ping, NULL, NULL, &error)) {
    fprintf(stderr, "libmongoc: %s\n", client ? error.message : "no connection string");
    return 1;
  }
  clock_gettime(CLOCK_MONOTONIC, &done);
  printf("%f\n", (done.tv_sec - begun.tv_sec) * 1e3 + (done.tv_nsec - begun.tv_nsec) / 1e6);
  bson_destroy(ping);
  mongoc_client_destroy(client);
  mongoc_cleanup();
  return 0;
}
