// A PJRT plugin that has devices in name only. It writes every program that it is
// given to compile to a file, and what is uploaded, executed and freed to a log, in
// the directory of CAGE_RECORD_DIR, if it is set; CAGE_RECORD_DEVICES is the number of
// devices. Executions return buffers of the right shape, filled with zeros; with
// CAGE_RECORD_PYTHON and CAGE_RECORD_SCRIPT, a Python and execute.py, another process
// compiles and executes all programs, and with CAGE_RECORD_COMPILE_ONLY it compiles them only.
// CAGE_RECORD_MEMORY is the number of bytes that the devices pretend to have.
// With clients of several processes, each has CAGE_RECORD_DEVICES, and meet.c says how they meet.
// CAGE_RECORD_FAULT makes something fail: fault.c says what.

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "record.h"

// One thing at a time: programs call from many threads, and free in others still.
static pthread_mutex_t busy = PTHREAD_MUTEX_INITIALIZER;

static char places[MAX_DEVICES]; // their addresses are the devices
static PJRT_Device* devices[MAX_DEVICES]; // of all processes
static Meeting meeting;			 // of these
static int num_devices, num_clients, num_programs, num_buffers;
static bool forwarding; // whether another process compiles
static bool computing;	// whether it executes, too

static int device_number(PJRT_Device* device) { return (int)((char*)device - places); }

// own_number is the number among the devices of this process.
static int own_number(PJRT_Device* device) { return device_number(device) - meeting.first; }

// open_file returns NULL where nothing is to be written.
static FILE* open_file(const char* name, const char* mode) {
	char path[4096];
	const char* directory = getenv("CAGE_RECORD_DIR");
	if (!directory || !*directory) return NULL;
	snprintf(path, sizeof path, "%s/%s", directory, name);
	FILE* file = fopen(path, mode);
	if (!file) {
		perror(path);
		exit(2);
	}
	return file;
}

// Everything that has nothing to say succeeds.
static PJRT_Error* succeed(void* args) { return NULL; }

static PJRT_Error* create_client(PJRT_Client_Create_Args* args) {
	const char* count = getenv("CAGE_RECORD_DEVICES");
	num_devices = count ? atoi(count) : 1;
	PJRT_Error* error = meet(args, num_devices, &meeting);
	if (!error && meeting.all > MAX_DEVICES) error = fail(PJRT_Error_Code_INVALID_ARGUMENT, "%d devices", meeting.all);
	if (error) return error;
	for (int i = 0; i < meeting.all; i++) devices[i] = (PJRT_Device*)&places[i];
	args->client = (PJRT_Client*)places;
	pthread_mutex_lock(&busy);
	forwarding = forward_wanted();
	computing = forwarding && forward_computes();
	error = injected("client", "");
	if (!error && forwarding) error = forward_start(meeting.address, meeting.rank, meeting.size);
	num_clients += !error;
	pthread_mutex_unlock(&busy);
	return error;
}

static PJRT_Error* destroy_client(PJRT_Client_Destroy_Args* args) {
	pthread_mutex_lock(&busy);
	if (!--num_clients) forward_stop();
	pthread_mutex_unlock(&busy);
	return NULL;
}

static PJRT_Error* all_devices(PJRT_Client_Devices_Args* args) {
	args->devices = devices;
	args->num_devices = meeting.all;
	return NULL;
}

static PJRT_Error* addressable_devices(PJRT_Client_AddressableDevices_Args* args) {
	args->addressable_devices = devices + meeting.first;
	args->num_addressable_devices = num_devices;
	return NULL;
}

static PJRT_Error* is_addressable(PJRT_Device_IsAddressable_Args* args) {
	args->is_addressable = own_number(args->device) >= 0 && own_number(args->device) < num_devices;
	return NULL;
}

static PJRT_Error* hardware_id(PJRT_Device_LocalHardwareId_Args* args) {
	args->local_hardware_id = own_number(args->device);
	return NULL;
}

static PJRT_Error* assign_devices(PJRT_Client_DefaultDeviceAssignment_Args* args) {
	for (size_t i = 0; i < args->default_assignment_size; i++) args->default_assignment[i] = i; // those of all processes
	return NULL;
}

static void free_program(Program* program) {
	free(program->text);
	free(program);
}

static PJRT_Error* compile(PJRT_Client_Compile_Args* args) {
	Program* program = calloc(1, sizeof *program);
	pthread_mutex_lock(&busy);
	program->serial = num_programs++;
	char name[64];
	snprintf(name, sizeof name, "%04d.mlir", program->serial);
	FILE* file = open_file(name, "w");
	if (file) {
		fwrite(args->program->code, 1, args->program->code_size, file);
		fclose(file);
	}
	program->text = strndup(args->program->code, args->program->code_size);
	read_outputs(program, program->text);
	PJRT_Error* error = injected("compile", program->text);
	if (!error && forwarding) error = forward_compile(program, args);
	pthread_mutex_unlock(&busy);
	args->executable = (PJRT_LoadedExecutable*)program;
	if (error) free_program(program);
	return error;
}

static PJRT_Error* get_executable(PJRT_LoadedExecutable_GetExecutable_Args* args) {
	args->executable = (PJRT_Executable*)args->loaded_executable;
	return NULL;
}

static PJRT_Error* num_outputs(PJRT_Executable_NumOutputs_Args* args) {
	args->num_outputs = ((Program*)args->executable)->outputs;
	return NULL;
}

static PJRT_Error* memory_of_program(PJRT_Executable_GetCompiledMemoryStats_Args* args) {
	const int64_t* memory = ((Program*)args->executable)->memory;
	args->generated_code_size_in_bytes = memory[0];
	args->argument_size_in_bytes = memory[1];
	args->output_size_in_bytes = memory[2];
	args->alias_size_in_bytes = memory[3];
	args->temp_size_in_bytes = memory[4];
	args->host_argument_size_in_bytes = memory[5];
	args->host_output_size_in_bytes = memory[6];
	args->host_alias_size_in_bytes = memory[7];
	args->host_temp_size_in_bytes = memory[8];
	return NULL;
}

// memory_of_device says what CAGE_RECORD_MEMORY says, the bytes that programs may take.
static PJRT_Error* memory_of_device(PJRT_Device_MemoryStats_Args* args) {
	const char* bytes = getenv("CAGE_RECORD_MEMORY");
	if (!bytes || atoll(bytes) <= 0) return fail(PJRT_Error_Code_UNIMPLEMENTED, "CAGE_RECORD_MEMORY does not say");
	args->bytes_limit = atoll(bytes);
	args->bytes_limit_is_set = true;
	return NULL;
}

static PJRT_Error* destroy_program(PJRT_LoadedExecutable_Destroy_Args* args) {
	pthread_mutex_lock(&busy);
	if (forwarding) forward_forget((Program*)args->executable);
	pthread_mutex_unlock(&busy);
	free_program((Program*)args->executable);
	return NULL;
}

static Buffer* new_buffer(int device, Shape shape) {
	Buffer* buffer = calloc(1, sizeof *buffer);
	buffer->serial = num_buffers++;
	buffer->device = device;
	buffer->shape = shape;
	return buffer;
}

static PJRT_Error* upload(PJRT_Client_BufferFromHostBuffer_Args* args) {
	Shape shape = {.type = args->type, .rank = args->num_dims};
	memcpy(shape.dims, args->dims, args->num_dims * sizeof *args->dims);
	pthread_mutex_lock(&busy);
	Buffer* buffer = new_buffer(device_number(args->device), shape);
	FILE* log = open_file("log", "a");
	if (log) {
		fprintf(log, "upload %d@%d\n", buffer->serial, buffer->device);
		fclose(log);
	}
	PJRT_Error* error = computing ? forward_upload(buffer, own_number(args->device), args->data, size_of(&shape)) : NULL;
	pthread_mutex_unlock(&busy);
	args->buffer = (PJRT_Buffer*)buffer;
	if (error) free(buffer);
	return error;
}

// log_run logs, for each device, the arguments and the results as serial@device, then
// the arguments that are not donated.
static void log_run(const Program* program, const PJRT_LoadedExecutable_Execute_Args* args, Buffer** results) {
	FILE* log = open_file("log", "a");
	if (!log) return;
	fprintf(log, "run %d:", program->serial);
	for (size_t d = 0; d < args->num_devices; d++) {
		for (size_t i = 0; i < args->num_args; i++) {
			Buffer* buffer = (Buffer*)args->argument_lists[d][i];
			fprintf(log, " %d@%d", buffer->serial, buffer->device);
		}
		fprintf(log, " ->");
		for (size_t i = 0; i < program->outputs; i++, results++) fprintf(log, " %d@%d", (*results)->serial, (*results)->device);
		fprintf(log, ";");
	}
	fprintf(log, " keep");
	for (size_t i = 0; i < args->options->num_non_donatable_input_indices; i++)
		fprintf(log, " %d", (int)args->options->non_donatable_input_indices[i]);
	fprintf(log, "\n");
	fclose(log);
}

// execute makes the results, and runs the program where something runs programs. When
// one device fails, the event of that device says so; when all do, the call itself.
static PJRT_Error* execute(PJRT_LoadedExecutable_Execute_Args* args) {
	Program* program = (Program*)args->executable;
	size_t count = args->num_devices * program->outputs;
	Buffer** results = malloc(count * sizeof *results);
	pthread_mutex_lock(&busy);
	for (size_t i = 0; i < count; i++) {
		int device = args->execute_device ? device_number(args->execute_device) : meeting.first + (int)(i / program->outputs);
		results[i] = new_buffer(device, program->shapes[i % program->outputs]);
	}
	log_run(program, args, results);
	int lost = -1;
	PJRT_Error* error = injected("execute", program->text);
	if (!error && computing) error = forward_execute(program, args, results, &lost);
	pthread_mutex_unlock(&busy);
	for (size_t i = 0; i < count; i++) args->output_lists[i / program->outputs][i % program->outputs] = (PJRT_Buffer*)results[i];
	for (size_t i = 0; error && i < count; i++) free(results[i]);
	free(results);
	for (size_t d = 0; args->device_complete_events && d < args->num_devices; d++)
		args->device_complete_events[d] = (int)d == lost ? (PJRT_Event*)error : NULL;
	return lost < 0 ? error : NULL;
}

static PJRT_Error* dimensions(PJRT_Buffer_Dimensions_Args* args) {
	Buffer* buffer = (Buffer*)args->buffer;
	args->dims = buffer->shape.dims;
	args->num_dims = buffer->shape.rank;
	return NULL;
}

static PJRT_Error* element_type(PJRT_Buffer_ElementType_Args* args) {
	args->type = ((Buffer*)args->buffer)->shape.type;
	return NULL;
}

static PJRT_Error* buffer_device(PJRT_Buffer_Device_Args* args) {
	args->device = devices[((Buffer*)args->buffer)->device];
	return NULL;
}

static PJRT_Error* download(PJRT_Buffer_ToHostBuffer_Args* args) {
	const Buffer* buffer = (Buffer*)args->src;
	size_t size = size_of(&buffer->shape), room = args->dst_size;
	PJRT_Error* error = NULL;
	args->dst_size = size;
	args->event = NULL;
	if (!args->dst) return NULL;
	if (room < size) return fail(PJRT_Error_Code_INVALID_ARGUMENT, "a buffer of %zu bytes does not fit into %zu", size, room);
	pthread_mutex_lock(&busy);
	if (computing)
		error = forward_download(buffer, args->dst, size);
	else
		memset(args->dst, 0, size);
	pthread_mutex_unlock(&busy);
	return error;
}

static PJRT_Error* destroy_buffer(PJRT_Buffer_Destroy_Args* args) {
	pthread_mutex_lock(&busy);
	if (computing) forward_free((Buffer*)args->buffer);
	pthread_mutex_unlock(&busy);
	free(args->buffer);
	return NULL;
}

const PJRT_Api* GetPjrtApi(void) {
	static PJRT_Api api;
	void** end = (void**)((char*)&api + sizeof api);
	for (void** function = (void**)&api.PJRT_Error_Destroy; function < end; function++) *function = (void*)succeed;
	api.struct_size = PJRT_Api_STRUCT_SIZE;
	api.pjrt_api_version.struct_size = PJRT_Api_Version_STRUCT_SIZE;
	api.pjrt_api_version.major_version = PJRT_API_MAJOR;
	api.pjrt_api_version.minor_version = PJRT_API_MINOR;
	api.PJRT_Error_Destroy = destroy_error;
	api.PJRT_Error_Message = error_message;
	api.PJRT_Error_GetCode = error_code;
	api.PJRT_Event_Await = await_event;
	api.PJRT_Event_Destroy = destroy_event;
	api.PJRT_Client_Create = create_client;
	api.PJRT_Client_Destroy = destroy_client;
	api.PJRT_Client_Devices = all_devices;
	api.PJRT_Client_AddressableDevices = addressable_devices;
	api.PJRT_Client_DefaultDeviceAssignment = assign_devices;
	api.PJRT_Client_Compile = compile;
	api.PJRT_Client_BufferFromHostBuffer = upload;
	api.PJRT_Device_IsAddressable = is_addressable;
	api.PJRT_Device_LocalHardwareId = hardware_id;
	api.PJRT_Device_MemoryStats = memory_of_device;
	api.PJRT_LoadedExecutable_GetExecutable = get_executable;
	api.PJRT_LoadedExecutable_Destroy = destroy_program;
	api.PJRT_LoadedExecutable_Execute = execute;
	api.PJRT_Executable_NumOutputs = num_outputs;
	api.PJRT_Executable_GetCompiledMemoryStats = memory_of_program;
	api.PJRT_Buffer_Dimensions = dimensions;
	api.PJRT_Buffer_ElementType = element_type;
	api.PJRT_Buffer_Device = buffer_device;
	api.PJRT_Buffer_ToHostBuffer = download;
	api.PJRT_Buffer_Destroy = destroy_buffer;
	return &api;
}
