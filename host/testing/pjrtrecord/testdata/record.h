// What the recorder keeps of buffers and programs, and how it hands work to a process
// that computes (forward.c).

#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pjrt_c_api.h"

#define MAX_DEVICES 64
#define MAX_RANK 16
#define MAX_OUTPUTS 4096
#define MAX_MEMORY 9

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
	char* text;
	size_t outputs;
	Shape shapes[MAX_OUTPUTS];
	int64_t memory[MAX_MEMORY]; // bytes of code, arguments, outputs, those that take the place of arguments, and values in between; then the same without code in the machine's memory
} Program;

// read_outputs reads the results of a program's main function, which stand on one line.
void read_outputs(Program* program, const char* text);

// size_of is the number of bytes of a tensor.
size_t size_of(const Shape* shape);

struct PJRT_Error {
	PJRT_Error_Code code;
	char* message;
};

// fail makes an error with a message, as printf does.
PJRT_Error* fail(PJRT_Error_Code code, const char* format, ...) __attribute__((format(printf, 2, 3)));

// meet asks the callbacks of the client's options about the other processes, of which there are size: it returns the number of the first
// device of this one, and of all devices, and where the process of XLA that belongs to the first process listens.
typedef struct {
	int rank, size, first, all;
	char address[64];
} Meeting;

PJRT_Error* meet(const PJRT_Client_Create_Args* args, int devices, Meeting* meeting);

// injected returns the error that the environment asks for at an event, or NULL. Its
// caller sees to it that there is one call at a time.
PJRT_Error* injected(const char* event, const char* program);

void error_message(PJRT_Error_Message_Args* args);
PJRT_Error* error_code(PJRT_Error_GetCode_Args* args);
void destroy_error(PJRT_Error_Destroy_Args* args);
PJRT_Error* await_event(PJRT_Event_Await_Args* args);
PJRT_Error* destroy_event(PJRT_Event_Destroy_Args* args);

// The functions below ask the process. Each returns NULL, or the error that it or the
// process has. Their caller sees to it that there is one call at a time.

// forward_wanted says whether there is a process to ask: whether the environment names one.
bool forward_wanted(void);

// forward_computes says whether that process executes programs, or only compiles them.
bool forward_computes(void);

// forward_start starts the process, unless it runs already. With an address, it computes with those of the other processes, of which
// the first listens there.
PJRT_Error* forward_start(const char* address, int rank, int size);

// forward_stop ends the process, unless CAGE_RECORD_LINGER says that it may be wanted
// again: it takes a second to start.
void forward_stop(void);

PJRT_Error* forward_compile(Program* program, const PJRT_Client_Compile_Args* args);
PJRT_Error* forward_upload(const Buffer* buffer, int device, const void* data, size_t size); // to a device of this process
PJRT_Error* forward_download(const Buffer* buffer, void* data, size_t size);

// forward_execute runs a program, whose results become the buffers of results, those of
// the first device first. Where one device fails, lost is its number, else -1.
PJRT_Error* forward_execute(const Program* program, const PJRT_LoadedExecutable_Execute_Args* args, Buffer** results, int* lost);

void forward_free(const Buffer* buffer);
void forward_forget(const Program* program);
