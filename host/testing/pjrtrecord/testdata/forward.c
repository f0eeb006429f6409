// Hands work to a process that computes, execute.py, over a socket. A request is its
// kind, the number of bytes that follow, and these; so is an answer, whose kind is the
// code of an error or 0. Numbers are in the order of bytes that the machine has.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "record.h"

enum { COMPILE = 1, UPLOAD, EXECUTE, DOWNLOAD, FREE, FORGET }; // FREE and FORGET have no answer

extern char** environ;

static pid_t child = -1;
static int channel = -1; // our end of the socket
static int errors = -1;	 // the file that has what the process writes to its standard error

static const char* setting(const char* name) {
	const char* value = getenv(name);
	return value && *value ? value : NULL;
}

bool forward_wanted(void) { return setting("CAGE_RECORD_PYTHON") != NULL; }

bool forward_computes(void) { return !setting("CAGE_RECORD_COMPILE_ONLY"); }

PJRT_Error* forward_start(const char* address, int rank, int size) {
	if (child >= 0) return NULL;
	const char *python = setting("CAGE_RECORD_PYTHON"), *script = setting("CAGE_RECORD_SCRIPT");
	if (!script) return fail(PJRT_Error_Code_FAILED_PRECONDITION, "CAGE_RECORD_SCRIPT is not set: it names execute.py");
	int ends[2];
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends)) return fail(PJRT_Error_Code_INTERNAL, "socketpair: %s", strerror(errno));
	if (errors >= 0) close(errors);
	errors = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	posix_spawn_file_actions_t actions;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, ends[1], 0);
	posix_spawn_file_actions_adddup2(&actions, errors, 1);
	posix_spawn_file_actions_adddup2(&actions, errors, 2);
	char numbers[2][16];
	snprintf(numbers[0], sizeof numbers[0], "%d", rank);
	snprintf(numbers[1], sizeof numbers[1], "%d", size);
	char* const arguments[] = {(char*)python, (char*)script, size > 1 ? (char*)address : NULL, numbers[0], numbers[1], NULL};
	int failed = posix_spawn(&child, python, &actions, NULL, arguments, environ);
	posix_spawn_file_actions_destroy(&actions);
	close(ends[1]);
	channel = ends[0];
	if (!failed) return NULL;
	close(channel);
	child = -1;
	return fail(PJRT_Error_Code_FAILED_PRECONDITION, "starting %s: %s", python, strerror(failed));
}

// ended says how the process ended, with the last that it wrote.
static PJRT_Error* ended(void) {
	if (child < 0) return fail(PJRT_Error_Code_UNAVAILABLE, "the process of XLA has ended before");
	int status = 0;
	close(channel); // a process that is still there reads the end of its input
	waitpid(child, &status, 0);
	child = -1;
	char text[2000] = "";
	off_t size = lseek(errors, 0, SEEK_END), from = size > (off_t)sizeof text - 1 ? size - (off_t)sizeof text + 1 : 0;
	if (pread(errors, text, size - from, from) < 0) *text = 0;
	if (WIFSIGNALED(status)) return fail(PJRT_Error_Code_UNAVAILABLE, "the process of XLA ended by signal %d (%s): %s", WTERMSIG(status), strsignal(WTERMSIG(status)), text);
	return fail(PJRT_Error_Code_UNAVAILABLE, "the process of XLA ended with exit code %d: %s", WEXITSTATUS(status), text);
}

void forward_stop(void) {
	if (child < 0 || setting("CAGE_RECORD_LINGER")) return;
	PJRT_Error_Destroy_Args error = {.error = ended()};
	destroy_error(&error);
}

static bool put(const void* data, size_t size) {
	for (const char* at = data; size;) {
		ssize_t n = send(channel, at, size, MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR) continue;
		if (n <= 0) return false;
		at += n, size -= n;
	}
	return true;
}

static bool get(void* data, size_t size) {
	for (char* at = data; size;) {
		ssize_t n = recv(channel, at, size, 0);
		if (n < 0 && errno == EINTR) continue;
		if (n <= 0) return false;
		at += n, size -= n;
	}
	return true;
}

static bool put_head(uint64_t kind, uint64_t size) {
	uint64_t head[] = {kind, size};
	return put(head, sizeof head);
}

// answer reads an answer: *data, which the caller frees, or the error that it is.
static PJRT_Error* answer(char** data, uint64_t* size) {
	uint64_t head[2];
	if (!get(head, sizeof head)) return ended();
	*data = malloc(head[1] + 1);
	*size = head[1];
	if (!get(*data, head[1])) {
		free(*data);
		return ended();
	}
	if (!head[0]) return NULL;
	(*data)[head[1]] = 0;
	PJRT_Error* error = fail(head[0], "%s", *data);
	free(*data);
	return error;
}

// confirmed reads an answer without data.
static PJRT_Error* confirmed(void) {
	char* data;
	uint64_t size;
	PJRT_Error* error = answer(&data, &size);
	if (!error) free(data);
	return error;
}

PJRT_Error* forward_compile(Program* program, const PJRT_Client_Compile_Args* args) {
	uint64_t head[] = {program->serial, args->compile_options_size};
	bool sent = child >= 0 && put_head(COMPILE, sizeof head + args->compile_options_size + args->program->code_size) && put(head, sizeof head) &&
				put(args->compile_options, args->compile_options_size) && put(args->program->code, args->program->code_size);
	if (!sent) return ended();
	char* data;
	uint64_t size;
	PJRT_Error* error = answer(&data, &size);
	if (error) return error;
	if (size == sizeof program->memory) memcpy(program->memory, data, size);
	free(data);
	return NULL;
}

PJRT_Error* forward_upload(const Buffer* buffer, int device, const void* data, size_t size) {
	uint64_t head[4 + MAX_RANK] = {buffer->serial, device, buffer->shape.type, buffer->shape.rank};
	for (size_t i = 0; i < buffer->shape.rank; i++) head[4 + i] = buffer->shape.dims[i];
	size_t length = (4 + buffer->shape.rank) * sizeof *head;
	bool sent = child >= 0 && put_head(UPLOAD, length + size) && put(head, length) && put(data, size);
	return sent ? confirmed() : ended();
}

PJRT_Error* forward_download(const Buffer* buffer, void* data, size_t size) {
	uint64_t serial = buffer->serial, length;
	if (child < 0 || !put_head(DOWNLOAD, sizeof serial) || !put(&serial, sizeof serial)) return ended();
	char* bytes;
	PJRT_Error* error = answer(&bytes, &length);
	if (error) return error;
	if (length == size)
		memcpy(data, bytes, size);
	else
		error = fail(PJRT_Error_Code_INTERNAL, "a buffer has %zu bytes, and the process of XLA sent %zu", size, (size_t)length);
	free(bytes);
	return error;
}

PJRT_Error* forward_execute(const Program* program, const PJRT_LoadedExecutable_Execute_Args* args, Buffer** results, int* lost) {
	size_t kept = args->options->num_non_donatable_input_indices;
	size_t count = 5 + kept + args->num_devices * (args->num_args + program->outputs);
	uint64_t* list = malloc(count * sizeof *list);
	uint64_t* at = list;
	*at++ = program->serial, *at++ = args->num_devices, *at++ = args->num_args, *at++ = program->outputs, *at++ = kept;
	for (size_t i = 0; i < kept; i++) *at++ = args->options->non_donatable_input_indices[i];
	for (size_t d = 0; d < args->num_devices; d++)
		for (size_t i = 0; i < args->num_args; i++) *at++ = ((Buffer*)args->argument_lists[d][i])->serial;
	for (size_t i = 0; i < args->num_devices * program->outputs; i++) *at++ = results[i]->serial;
	bool sent = child >= 0 && put_head(EXECUTE, count * sizeof *list) && put(list, count * sizeof *list);
	free(list);
	*lost = -1;
	if (!sent) return ended();
	char* data;
	uint64_t size;
	PJRT_Error* error = answer(&data, &size);
	if (error) return error;
	if (size > sizeof(uint64_t)) { // one device failed: its number, and why
		uint64_t device;
		memcpy(&device, data, sizeof device);
		*lost = device;
		error = fail(PJRT_Error_Code_UNAVAILABLE, "%.*s", (int)(size - sizeof device), data + sizeof device);
	}
	free(data);
	return error;
}

static void tell(uint64_t kind, uint64_t serial) {
	if (child >= 0 && put_head(kind, sizeof serial)) put(&serial, sizeof serial);
}

void forward_free(const Buffer* buffer) { tell(FREE, buffer->serial); }
void forward_forget(const Program* program) { tell(FORGET, program->serial); }
