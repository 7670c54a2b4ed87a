/* The tasks of DriverBench for libmongoc: see `process.rs`. */

#include <dirent.h>
#include <fcntl.h>
#include <mongoc/mongoc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define DATABASE "perftest"
#define STORED "gridfstest"
#define STORED_LENGTH 52428800
#define COMMANDS 10000
#define LINES 5000
#define MAX_FILES 100
#define MAX_WORKERS 64
#define PATH_LENGTH 4096

/* What the program is told. */
static const char *task, *address, *data_folder, *scratch;
static int workers = 1;

static mongoc_client_t *client;
static mongoc_client_pool_t *pool;
static mongoc_database_t *database;
static mongoc_collection_t *corpus;

/* What a task holds in memory. */
static int count;
static char *text, *bytes;
static size_t text_length;
static bson_t *document, **documents;
static bson_value_t stored;
static mongoc_bulk_operation_t *bulk;
static char *files[MAX_FILES];
static int file_count;
static atomic_int next_file;

static void fail(const char *message) {
  fprintf(stderr, "%s: %s\n", task, message);
  exit(1);
}

static void check(bool done, const bson_error_t *error) {
  if (!done) fail(error->message);
}

static bool begins(const char *beginning) { return !strncmp(task, beginning, strlen(beginning)); }

static bool ends(const char *end) {
  size_t of_task = strlen(task), of_end = strlen(end);
  return of_task >= of_end && !strcmp(task + of_task - of_end, end);
}

static bool is(const char *name) { return !strcmp(task, name); }

static bool is_parallel(void) { return strstr(task, "-multi-") != NULL; }

static char *read_file(const char *name, size_t *length) {
  char path[PATH_LENGTH];
  snprintf(path, sizeof path, "%s/%s", data_folder, name);
  FILE *file = fopen(path, "rb");
  if (!file) fail("a file is missing");
  fseek(file, 0, SEEK_END);
  *length = (size_t)ftell(file);
  rewind(file);
  char *content = malloc(*length + 1);
  if (fread(content, 1, *length, file) != *length) fail("a file cannot be read");
  content[*length] = '\0';
  fclose(file);
  return content;
}

static int by_name(const void *one, const void *other) {
  return strcmp(*(char *const *)one, *(char *const *)other);
}

static void list_files(const char *name) {
  char path[2 * PATH_LENGTH];
  snprintf(path, sizeof path, "%s/parallel/%s", data_folder, name);
  DIR *folder = opendir(path);
  if (!folder) fail("a folder is missing");
  for (struct dirent *entry; file_count < MAX_FILES && (entry = readdir(folder));) {
    if (entry->d_name[0] == '.') continue;
    snprintf(path, sizeof path, "%s/parallel/%s/%s", data_folder, name, entry->d_name);
    files[file_count++] = strdup(path);
  }
  closedir(folder);
  qsort(files, (size_t)file_count, sizeof *files, by_name);
}

static void empty_scratch(void) {
  char path[2 * PATH_LENGTH];
  DIR *folder = opendir(scratch);
  if (!folder) fail("a folder is missing");
  for (struct dirent *entry; (entry = readdir(folder));) {
    snprintf(path, sizeof path, "%s/%s", scratch, entry->d_name);
    if (entry->d_name[0] != '.') unlink(path);
  }
  closedir(folder);
}

static mongoc_gridfs_bucket_t *open_bucket(mongoc_client_t *of) {
  bson_error_t error;
  mongoc_database_t *its = mongoc_client_get_database(of, DATABASE);
  mongoc_gridfs_bucket_t *bucket = mongoc_gridfs_bucket_new(its, NULL, NULL, &error);
  check(bucket, &error);
  mongoc_database_destroy(its);
  return bucket;
}

static void upload(const char *name, const void *content, size_t length) {
  bson_error_t error;
  mongoc_gridfs_bucket_t *bucket = open_bucket(client);
  mongoc_stream_t *stream =
      mongoc_gridfs_bucket_open_upload_stream(bucket, name, NULL, NULL, &error);
  check(stream, &error);
  if (mongoc_stream_write(stream, (void *)content, length, 0) != (ssize_t)length ||
      mongoc_stream_close(stream))
    fail("a file cannot be stored");
  mongoc_stream_destroy(stream);
  mongoc_gridfs_bucket_destroy(bucket);
}

static void find_stored(mongoc_gridfs_bucket_t *bucket, const char *name, bson_value_t *id) {
  bson_t *filter = BCON_NEW("filename", BCON_UTF8(name));
  const bson_t *found;
  bson_iter_t iter;
  mongoc_cursor_t *cursor = mongoc_gridfs_bucket_find(bucket, filter, NULL);
  if (!mongoc_cursor_next(cursor, &found) || !bson_iter_init_find(&iter, found, "_id"))
    fail("there is no file to read");
  bson_value_copy(bson_iter_value(&iter), id);
  mongoc_cursor_destroy(cursor);
  bson_destroy(filter);
}

static void connect_to_server(void) {
  bson_error_t error;
  char name[PATH_LENGTH];
  snprintf(name, sizeof name, "mongodb://%s/?directConnection=true&w=1", address);
  mongoc_uri_t *uri = mongoc_uri_new_with_error(name, &error);
  check(uri, &error);
  client = mongoc_client_new_from_uri(uri);
  database = mongoc_client_get_database(client, DATABASE);
  corpus = mongoc_client_get_collection(client, DATABASE, "corpus");
  if (is_parallel()) pool = mongoc_client_pool_new(uri);
  mongoc_uri_destroy(uri);
}

static void set_up(void) {
  static const char *const names[][2] = {
      {"flat-bson", "extended_bson/flat_bson.json"},
      {"deep-bson", "extended_bson/deep_bson.json"},
      {"full-bson", "extended_bson/full_bson.json"},
      {"find", "single_and_multi_document/tweet.json"},
      {"small-doc", "single_and_multi_document/small_doc.json"},
      {"large-doc", "single_and_multi_document/large_doc.json"},
  };
  bson_error_t error;
  count = begins("large-doc") ? 10 : 10000;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    if (!begins(names[i][0])) continue;
    text = read_file(names[i][1], &text_length);
    document = bson_new_from_json((uint8_t *)text, (ssize_t)text_length, &error);
    check(document, &error);
    documents = calloc((size_t)count, sizeof *documents);
    for (int j = 0; j < count; j++) documents[j] = document;
  }
  if (ends("coding")) return;
  connect_to_server();
  if (is("gridfs-upload") || is("gridfs-download"))
    bytes = read_file("single_and_multi_document/gridfs_large.bin", &text_length);
  if (is("gridfs-download")) {
    mongoc_gridfs_bucket_t *bucket = open_bucket(client);
    find_stored(bucket, STORED, &stored);
    mongoc_gridfs_bucket_destroy(bucket);
  }
  if (is_parallel()) list_files(begins("ldjson") ? "ldjson_multi" : "gridfs_multi");
}

static void drop(const char *name) {
  mongoc_collection_t *collection = mongoc_client_get_collection(client, DATABASE, name);
  /* It is no error that matters if there is none. */
  mongoc_collection_drop(collection, NULL);
  mongoc_collection_destroy(collection);
}

/* Does what is to be done before each iteration. */
static void before(void) {
  bson_error_t error;
  if (is("gridfs-upload") || is("gridfs-multi-upload")) {
    drop("fs.files");
    drop("fs.chunks");
    upload("one byte", "1", 1);
  } else if (is("ldjson-multi-export") || is("gridfs-multi-download")) {
    empty_scratch();
  } else if (strstr(task, "insert") || ends("import") || ends("mixed")) {
    drop("corpus");
    mongoc_collection_t *created =
        mongoc_database_create_collection(database, "corpus", NULL, &error);
    check(created, &error);
    mongoc_collection_destroy(created);
  }
  if (!strstr(task, "-collection-bulk-write-")) return;
  bulk = mongoc_collection_create_bulk_operation_with_opts(corpus, NULL);
  bson_t empty = BSON_INITIALIZER;
  for (int i = 0; i < count; i++) {
    check(mongoc_bulk_operation_insert_with_opts(bulk, document, NULL, &error), &error);
    if (!ends("mixed")) continue;
    check(mongoc_bulk_operation_replace_one_with_opts(bulk, &empty, document, NULL, &error),
          &error);
    check(mongoc_bulk_operation_remove_one_with_opts(bulk, &empty, NULL, &error), &error);
  }
}

static void encode(void) {
  bson_error_t error;
  for (int i = 0; i < count; i++) {
    bson_t encoded;
    check(bson_init_from_json(&encoded, text, (ssize_t)text_length, &error), &error);
    bson_destroy(&encoded);
  }
}

static void decode(void) {
  for (int i = 0; i < count; i++) bson_free(bson_as_canonical_extended_json(document, NULL));
}

static void run_commands(void) {
  bson_error_t error;
  bson_t *hello = BCON_NEW("hello", BCON_BOOL(true));
  for (int i = 0; i < COMMANDS; i++) {
    bson_t reply;
    check(mongoc_database_command_simple(database, hello, NULL, &reply, &error), &error);
    bson_destroy(&reply);
  }
  bson_destroy(hello);
}

static int find(mongoc_collection_t *collection, const bson_t *filter) {
  bson_error_t error;
  const bson_t *found;
  int came = 0;
  mongoc_cursor_t *cursor = mongoc_collection_find_with_opts(collection, filter, NULL, NULL);
  while (mongoc_cursor_next(cursor, &found)) came++;
  check(!mongoc_cursor_error(cursor, &error), &error);
  mongoc_cursor_destroy(cursor);
  return came;
}

static void find_one_by_id(void) {
  for (int id = 1; id <= count; id++) {
    bson_t *filter = BCON_NEW("_id", BCON_INT32(id));
    if (find(corpus, filter) != 1) fail("no document has come");
    bson_destroy(filter);
  }
}

static void find_many(void) {
  bson_t filter = BSON_INITIALIZER;
  if (find(corpus, &filter) != count) fail("documents are missing");
}

static void insert_ones(void) {
  bson_error_t error;
  for (int i = 0; i < count; i++)
    check(mongoc_collection_insert_one(corpus, document, NULL, NULL, &error), &error);
}

static void insert_many(void) {
  bson_error_t error;
  check(mongoc_collection_insert_many(corpus, (const bson_t **)documents, (size_t)count, NULL,
                                      NULL, &error),
        &error);
}

static void bulk_write(void) {
  bson_error_t error;
  check(mongoc_bulk_operation_execute(bulk, NULL, &error), &error);
  mongoc_bulk_operation_destroy(bulk);
}

static void gridfs_upload(void) { upload(STORED, bytes, text_length); }

static void gridfs_download(void) {
  bson_error_t error;
  mongoc_gridfs_bucket_t *bucket = open_bucket(client);
  mongoc_stream_t *stream = mongoc_gridfs_bucket_open_download_stream(bucket, &stored, &error);
  check(stream, &error);
  size_t came = 0;
  for (ssize_t more = 1; more > 0; came += (size_t)more) {
    more = mongoc_stream_read(stream, bytes + came, text_length - came, 0, 0);
    if (more < 0) fail("a file cannot be read");
  }
  if (came != STORED_LENGTH) fail("bytes are missing");
  mongoc_stream_destroy(stream);
  mongoc_gridfs_bucket_destroy(bucket);
}

static void import_file(mongoc_client_t *its, int number) {
  bson_error_t error;
  bson_t *lines[LINES];
  int read = 0;
  bson_json_reader_t *reader = bson_json_reader_new_from_file(files[number], &error);
  check(reader, &error);
  for (;; read++) {
    bson_t *line = bson_new();
    int more = bson_json_reader_read(reader, line, &error);
    check(more >= 0, &error);
    if (!more || read == LINES) {
      bson_destroy(line);
      break;
    }
    lines[read] = line;
  }
  bson_json_reader_destroy(reader);
  mongoc_collection_t *collection = mongoc_client_get_collection(its, DATABASE, "corpus");
  bson_t *unordered = BCON_NEW("ordered", BCON_BOOL(false));
  check(mongoc_collection_insert_many(collection, (const bson_t **)lines, (size_t)read, unordered,
                                      NULL, &error),
        &error);
  while (read) bson_destroy(lines[--read]);
  bson_destroy(unordered);
  mongoc_collection_destroy(collection);
}

static void export_file(mongoc_client_t *its, int number) {
  bson_error_t error;
  char path[PATH_LENGTH];
  const bson_t *found;
  int came = 0;
  snprintf(path, sizeof path, "%s/%d.txt", scratch, number);
  FILE *out = fopen(path, "w");
  if (!out) fail("a file cannot be written");
  bson_t *filter = BCON_NEW("_id", "{", "$gte", BCON_INT64((int64_t)number * LINES), "$lt",
                            BCON_INT64((int64_t)(number + 1) * LINES), "}");
  mongoc_collection_t *collection = mongoc_client_get_collection(its, DATABASE, "corpus");
  mongoc_cursor_t *cursor = mongoc_collection_find_with_opts(collection, filter, NULL, NULL);
  for (; mongoc_cursor_next(cursor, &found); came++) {
    size_t length;
    char *line = bson_as_relaxed_extended_json(found, &length);
    line[length] = '\n';
    fwrite(line, 1, length + 1, out);
    bson_free(line);
  }
  check(!mongoc_cursor_error(cursor, &error), &error);
  if (fclose(out) || came != LINES) fail("documents are missing");
  mongoc_cursor_destroy(cursor);
  mongoc_collection_destroy(collection);
  bson_destroy(filter);
}

static const char *name_of(int number) { return strrchr(files[number], '/') + 1; }

static void upload_file(mongoc_client_t *its, int number) {
  bson_error_t error;
  mongoc_gridfs_bucket_t *bucket = open_bucket(its);
  mongoc_stream_t *source = mongoc_stream_file_new_for_path(files[number], O_RDONLY, 0);
  if (!source) fail("a file cannot be read");
  check(mongoc_gridfs_bucket_upload_from_stream(bucket, name_of(number), source, NULL, NULL,
                                                &error),
        &error);
  mongoc_stream_destroy(source);
  mongoc_gridfs_bucket_destroy(bucket);
}

static void download_file(mongoc_client_t *its, int number) {
  bson_error_t error;
  bson_value_t id;
  char path[PATH_LENGTH];
  snprintf(path, sizeof path, "%s/%s", scratch, name_of(number));
  mongoc_gridfs_bucket_t *bucket = open_bucket(its);
  mongoc_stream_t *target = mongoc_stream_file_new_for_path(path, O_WRONLY | O_CREAT, 0600);
  if (!target) fail("a file cannot be written");
  find_stored(bucket, name_of(number), &id);
  check(mongoc_gridfs_bucket_download_to_stream(bucket, &id, target, &error), &error);
  bson_value_destroy(&id);
  mongoc_stream_destroy(target);
  mongoc_gridfs_bucket_destroy(bucket);
}

static void *work(void *each) {
  void (*const *job)(mongoc_client_t *, int) = each;
  mongoc_client_t *its = mongoc_client_pool_pop(pool);
  for (int number; (number = atomic_fetch_add(&next_file, 1)) < file_count;) (*job)(its, number);
  mongoc_client_pool_push(pool, its);
  return NULL;
}

/* Does work for each file, on threads. */
static void on_threads(void (*each)(mongoc_client_t *, int)) {
  pthread_t threads[MAX_WORKERS];
  atomic_store(&next_file, 0);
  for (int i = 0; i < workers; i++)
    if (pthread_create(&threads[i], NULL, work, &each)) fail("a thread cannot be started");
  for (int i = 0; i < workers; i++) pthread_join(threads[i], NULL);
}

static void run(void) {
  if (ends("encoding")) encode();
  else if (ends("decoding")) decode();
  else if (is("run-command")) run_commands();
  else if (is("find-one-by-id")) find_one_by_id();
  else if (is("find-many")) find_many();
  else if (ends("insert-one")) insert_ones();
  else if (ends("bulk-insert")) insert_many();
  else if (strstr(task, "-collection-bulk-write-")) bulk_write();
  else if (is("gridfs-upload")) gridfs_upload();
  else if (is("gridfs-download")) gridfs_download();
  else if (is("ldjson-multi-import")) on_threads(import_file);
  else if (is("ldjson-multi-export")) on_threads(export_file);
  else if (is("gridfs-multi-upload")) on_threads(upload_file);
  else if (is("gridfs-multi-download")) on_threads(download_file);
  else fail("there is no such task");
}

static int64_t now(clockid_t clock) {
  struct timespec time;
  clock_gettime(clock, &time);
  return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

static void read_arguments(int argc, char **argv) {
  for (int i = 1; i + 1 < argc; i += 2) {
    if (!strcmp(argv[i], "--task")) task = argv[i + 1];
    else if (!strcmp(argv[i], "--address")) address = argv[i + 1];
    else if (!strcmp(argv[i], "--data")) data_folder = argv[i + 1];
    else if (!strcmp(argv[i], "--scratch")) scratch = argv[i + 1];
    else if (!strcmp(argv[i], "--workers")) workers = atoi(argv[i + 1]);
  }
  if (workers > MAX_WORKERS) workers = MAX_WORKERS;
}

int main(int argc, char **argv) {
  if (argc == 2 && !strcmp(argv[1], "--version")) {
    printf("libmongoc %s\n", mongoc_get_version());
    return 0;
  }
  read_arguments(argc, argv);
  if (strstr(task, "-client-bulk-write-")) {
    puts("without bulk writes of clients");
    return 0;
  }
  mongoc_init();
  setvbuf(stdout, NULL, _IOLBF, 0);
  set_up();
  puts("ready");
  for (char line[16]; fgets(line, sizeof line, stdin);) {
    before();
    int64_t wall = now(CLOCK_MONOTONIC), cpu = now(CLOCK_PROCESS_CPUTIME_ID);
    run();
    wall = now(CLOCK_MONOTONIC) - wall;
    cpu = now(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    printf("%lld %lld\n", (long long)wall, (long long)cpu);
  }
  return 0;
}
