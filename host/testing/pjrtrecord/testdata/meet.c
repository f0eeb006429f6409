// How the clients of several processes meet, as XLA's for GPUs do: each says through the callbacks
// of its options how many devices it has, and asks what the others have.

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "record.h"

enum { PATIENCE = 60000 }; // milliseconds

static PJRT_Error* make_error(PJRT_Error_Code code, const char* message, size_t size) { return fail(code, "%.*s", (int)size, message); }

static PJRT_CallbackError on_error = make_error;

static int number(const PJRT_Client_Create_Args* args, const char* name, int otherwise) {
	for (size_t i = 0; i < args->num_options; i++) {
		const PJRT_NamedValue* option = &args->create_options[i];
		if (option->name_size == strlen(name) && !memcmp(option->name, name, option->name_size) && option->type == PJRT_NamedValue_kInt64) return (int)option->int64_value;
	}
	return otherwise;
}

static PJRT_Error* put(const PJRT_Client_Create_Args* args, const char* key, const char* value) {
	PJRT_KeyValuePutCallback_Args a = {.struct_size = PJRT_KeyValuePutCallback_Args_STRUCT_SIZE, .key = key, .key_size = strlen(key),
		.value = value, .value_size = strlen(value), .callback_error = &on_error, .user_arg = args->kv_put_user_arg};
	return args->kv_put_callback(&a);
}

static PJRT_Error* get(const PJRT_Client_Create_Args* args, const char* key, char* value, size_t room) {
	PJRT_KeyValueGetCallback_Args a = {.struct_size = PJRT_KeyValueGetCallback_Args_STRUCT_SIZE, .key = key, .key_size = strlen(key),
		.timeout_in_ms = PATIENCE, .callback_error = &on_error, .user_arg = args->kv_get_user_arg};
	PJRT_Error* error = args->kv_get_callback(&a);
	if (error) return error;
	snprintf(value, room, "%.*s", (int)a.value_size, a.value);
	a.value_deleter_callback(a.value);
	return NULL;
}

// try_nothing asks for a key that nobody sets: XLA's clients rely on the code of the error.
static PJRT_Error* try_nothing(const PJRT_Client_Create_Args* args) {
	static const char key[] = "nothing";
	PJRT_KeyValueTryGetCallback_Args a = {.struct_size = PJRT_KeyValueTryGetCallback_Args_STRUCT_SIZE, .key = key, .key_size = strlen(key),
		.callback_error = &on_error, .user_arg = args->kv_try_get_user_arg};
	PJRT_Error* error = args->kv_try_get_callback(&a);
	if (!error) return fail(PJRT_Error_Code_INTERNAL, "a key that nobody has set has a value");
	if (error->code != PJRT_Error_Code_NOT_FOUND) return error;
	free(error->message);
	free(error);
	return NULL;
}

// free_address is where the process of XLA can listen that belongs to the first process.
static void free_address(char* address, size_t room) {
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof at;
	int s = socket(AF_INET, SOCK_STREAM, 0);
	if (s < 0 || bind(s, (struct sockaddr*)&at, size) || getsockname(s, (struct sockaddr*)&at, &size)) abort();
	close(s);
	snprintf(address, room, "127.0.0.1:%d", ntohs(at.sin_port));
}

PJRT_Error* meet(const PJRT_Client_Create_Args* args, int devices, Meeting* m) {
	*m = (Meeting){.rank = number(args, "node_id", 0), .size = number(args, "num_nodes", 1), .all = devices};
	if (m->size == 1) return NULL;
	if (!args->kv_get_callback || !args->kv_try_get_callback || !args->kv_put_callback)
		return fail(PJRT_Error_Code_INVALID_ARGUMENT, "%d processes, and no callbacks by which they could meet", m->size);
	PJRT_Error* error = try_nothing(args);
	if (!error && m->rank == 0) {
		free_address(m->address, sizeof m->address);
		error = put(args, "address", m->address);
	}
	char key[64], value[64];
	snprintf(key, sizeof key, "devices of %d", m->rank);
	snprintf(value, sizeof value, "%d", devices);
	if (!error) error = put(args, key, value);
	m->all = 0;
	for (int i = 0; !error && i < m->size; i++) {
		snprintf(key, sizeof key, "devices of %d", i);
		if ((error = get(args, key, value, sizeof value))) break;
		if (i == m->rank) m->first = m->all;
		m->all += atoi(value);
	}
	return error ? error : get(args, "address", m->address, sizeof m->address);
}
