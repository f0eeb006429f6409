// A PJRT plugin that has devices in name only. It writes every program that it is
// given to compile to a file, and what is uploaded, executed and freed to a log, in
// the directory of CAGE_RECORD_DIR; CAGE_RECORD_DEVICES is the number of devices.
// Executions return buffers of the right shape, filled with zeros.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pjrt_c_api.h"

#define MAX_DEVICES 64
#define MAX_RANK 16
#define MAX_OUTPUTS 4096

typedef struct {
	PJRT_Buffer_Type type;
	size_t rank;
	int64_t dims[MAX_RANK];
} Shape;

typedef struct {
	int serial, device;
	Shape shape;
} Buffer;

typedef struct {
	int serial;
	size_t outputs;
	Shape shapes[MAX_OUTPUTS];
} Program;

static char places[MAX_DEVICES]; // their addresses are the devices
static PJRT_Device* devices[MAX_DEVICES];
static int num_devices, num_programs, num_buffers;

static const struct {
	const char* name;
	PJRT_Buffer_Type type;
	size_t size;
} types[] = {
	{"i1", PJRT_Buffer_Type_PRED, 1},  {"i8", PJRT_Buffer_Type_S8, 1},	 {"i16", PJRT_Buffer_Type_S16, 2},
	{"i32", PJRT_Buffer_Type_S32, 4},  {"i64", PJRT_Buffer_Type_S64, 8}, {"ui8", PJRT_Buffer_Type_U8, 1},
	{"ui32", PJRT_Buffer_Type_U32, 4}, {"f32", PJRT_Buffer_Type_F32, 4}, {"f64", PJRT_Buffer_Type_F64, 8},
	{"ui64", PJRT_Buffer_Type_U64, 8}, {"bf16", PJRT_Buffer_Type_BF16, 2},
};

static int device_number(PJRT_Device* device) { return (int)((char*)device - places); }

static FILE* open_file(const char* name, const char* mode) {
	char path[4096];
	const char* directory = getenv("CAGE_RECORD_DIR");
	snprintf(path, sizeof path, "%s/%s", directory ? directory : ".", name);
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
	for (int i = 0; i < num_devices; i++) devices[i] = (PJRT_Device*)&places[i];
	args->client = (PJRT_Client*)places;
	return NULL;
}

static PJRT_Error* addressable_devices(PJRT_Client_AddressableDevices_Args* args) {
	args->addressable_devices = devices;
	args->num_addressable_devices = num_devices;
	return NULL;
}

static PJRT_Error* is_addressable(PJRT_Device_IsAddressable_Args* args) {
	args->is_addressable = true;
	return NULL;
}

static PJRT_Error* hardware_id(PJRT_Device_LocalHardwareId_Args* args) {
	args->local_hardware_id = device_number(args->device);
	return NULL;
}

static PJRT_Error* assign_devices(PJRT_Client_DefaultDeviceAssignment_Args* args) {
	for (size_t i = 0; i < args->default_assignment_size; i++) args->default_assignment[i] = i;
	return NULL;
}

// read_shape reads a type like tensor<2x3xf32>, from behind the bracket.
static Shape read_shape(const char* text) {
	Shape shape = {PJRT_Buffer_Type_INVALID};
	char* end;
	for (long dim = strtol(text, &end, 10); end != text && shape.rank < MAX_RANK; dim = strtol(text, &end, 10)) {
		shape.dims[shape.rank++] = dim;
		text = end + 1;
	}
	for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
		size_t length = strlen(types[i].name);
		if (!strncmp(text, types[i].name, length) && text[length] == '>') shape.type = types[i].type;
	}
	return shape;
}

// read_outputs reads the results of the main function, which stand on one line.
static void read_outputs(Program* program, const char* text) {
	static const char tensor[] = "tensor<";
	const char* at = strstr(text, "@main(");
	at = at ? strstr(at, ") -> ") : NULL;
	const char* end = at ? strchr(at, '\n') : NULL;
	while (at && (at = strstr(at, tensor)) && at < end && program->outputs < MAX_OUTPUTS) {
		at += sizeof tensor - 1;
		program->shapes[program->outputs++] = read_shape(at);
	}
}

static PJRT_Error* compile(PJRT_Client_Compile_Args* args) {
	Program* program = calloc(1, sizeof *program);
	program->serial = num_programs++;
	char name[64];
	snprintf(name, sizeof name, "%04d.mlir", program->serial);
	FILE* file = open_file(name, "w");
	fwrite(args->program->code, 1, args->program->code_size, file);
	fclose(file);
	char* text = strndup(args->program->code, args->program->code_size);
	read_outputs(program, text);
	free(text);
	args->executable = (PJRT_LoadedExecutable*)program;
	return NULL;
}

static PJRT_Error* get_executable(PJRT_LoadedExecutable_GetExecutable_Args* args) {
	args->executable = (PJRT_Executable*)args->loaded_executable;
	return NULL;
}

static PJRT_Error* num_outputs(PJRT_Executable_NumOutputs_Args* args) {
	args->num_outputs = ((Program*)args->executable)->outputs;
	return NULL;
}

static PJRT_Error* destroy_program(PJRT_LoadedExecutable_Destroy_Args* args) {
	free(args->executable);
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
	Shape shape = {args->type, args->num_dims};
	memcpy(shape.dims, args->dims, args->num_dims * sizeof *args->dims);
	Buffer* buffer = new_buffer(device_number(args->device), shape);
	FILE* log = open_file("log", "a");
	fprintf(log, "upload %d@%d\n", buffer->serial, buffer->device);
	fclose(log);
	args->buffer = (PJRT_Buffer*)buffer;
	return NULL;
}

// execute logs, for each device, the arguments and the results as serial@device, then
// the arguments that are not donated.
static PJRT_Error* execute(PJRT_LoadedExecutable_Execute_Args* args) {
	Program* program = (Program*)args->executable;
	FILE* log = open_file("log", "a");
	fprintf(log, "run %d:", program->serial);
	for (size_t d = 0; d < args->num_devices; d++) {
		for (size_t i = 0; i < args->num_args; i++) {
			Buffer* buffer = (Buffer*)args->argument_lists[d][i];
			fprintf(log, " %d@%d", buffer->serial, buffer->device);
		}
		fprintf(log, " ->");
		int device = args->execute_device ? device_number(args->execute_device) : (int)d;
		for (size_t i = 0; i < program->outputs; i++) {
			Buffer* buffer = new_buffer(device, program->shapes[i]);
			fprintf(log, " %d@%d", buffer->serial, buffer->device);
			args->output_lists[d][i] = (PJRT_Buffer*)buffer;
		}
		fprintf(log, ";");
	}
	fprintf(log, " keep");
	for (size_t i = 0; i < args->options->num_non_donatable_input_indices; i++)
		fprintf(log, " %d", (int)args->options->non_donatable_input_indices[i]);
	fprintf(log, "\n");
	fclose(log);
	return NULL;
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
	const Shape* shape = &((Buffer*)args->src)->shape;
	size_t size = 0;
	for (size_t i = 0; i < sizeof types / sizeof *types; i++)
		if (types[i].type == shape->type) size = types[i].size;
	for (size_t i = 0; i < shape->rank; i++) size *= shape->dims[i];
	if (args->dst) memset(args->dst, 0, size < args->dst_size ? size : args->dst_size);
	args->dst_size = size;
	return NULL;
}

static PJRT_Error* destroy_buffer(PJRT_Buffer_Destroy_Args* args) {
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
	api.PJRT_Client_Create = create_client;
	api.PJRT_Client_AddressableDevices = addressable_devices;
	api.PJRT_Client_DefaultDeviceAssignment = assign_devices;
	api.PJRT_Client_Compile = compile;
	api.PJRT_Client_BufferFromHostBuffer = upload;
	api.PJRT_Device_IsAddressable = is_addressable;
	api.PJRT_Device_LocalHardwareId = hardware_id;
	api.PJRT_LoadedExecutable_GetExecutable = get_executable;
	api.PJRT_LoadedExecutable_Destroy = destroy_program;
	api.PJRT_LoadedExecutable_Execute = execute;
	api.PJRT_Executable_NumOutputs = num_outputs;
	api.PJRT_Buffer_Dimensions = dimensions;
	api.PJRT_Buffer_ElementType = element_type;
	api.PJRT_Buffer_Device = buffer_device;
	api.PJRT_Buffer_ToHostBuffer = download;
	api.PJRT_Buffer_Destroy = destroy_buffer;
	return &api;
}
