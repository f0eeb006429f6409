//go:build cuda

package engine

// #include <stddef.h>
//
// // The arguments of functions of PJRT's C interface, which adds fields at the end only.
// typedef struct { size_t size; void *extensions, *what; } destroy_arguments;
// typedef struct { size_t size; void *extensions, *error; const char* message; size_t message_size; } message_arguments;
// typedef struct { size_t size; void *extensions, *device; void* const* memories; size_t num_memories; } memories_arguments;
// typedef struct { size_t size; void *extensions, *memory; const char* kind; size_t kind_size; } kind_arguments;
// typedef struct { size_t size; void *extensions, *buffer, *memory, *copy; } copy_arguments;
//
// static void* call(void* function, void* arguments) { return ((void* (*)(void*))function)(arguments); }
//
// static void* list_memories(void* function, memories_arguments* a, void* device) {
// 	a->size = sizeof *a;
// 	a->device = device;
// 	return call(function, a);
// }
//
// static void* ask_kind(void* function, kind_arguments* a, void* const* memories, size_t i) {
// 	a->size = sizeof *a;
// 	a->memory = memories[i];
// 	return call(function, a);
// }
//
// static void* copy_to(void* function, void* buffer, void* memory, void** copy) {
// 	copy_arguments a = {sizeof a, NULL, buffer, memory, NULL};
// 	void* error = call(function, &a);
// 	*copy = a.copy;
// 	return error;
// }
//
// static void ask_message(void* function, message_arguments* a, void* error) {
// 	a->size = sizeof *a;
// 	a->error = error;
// 	call(function, a);
// }
//
// static void* destroy(void* function, void* what) {
// 	destroy_arguments a = {sizeof a, NULL, what};
// 	return call(function, &a);
// }
import "C"

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"unsafe"

	"github.com/gomlx/compute"
	"github.com/gomlx/go-xla/pjrt"
)

// go-xla v0.4.13 has no calls for memories other than the GPU's own, so this calls the plugin's functions, as cudamemory.go does.

// checkPinned refuses a plugin whose devices have no pinned memory of the machine.
func checkPinned(backend compute.Backend) error {
	client, err := clientOf(backend)
	if err != nil {
		return hiddenLack(err)
	}
	calls, err := callsOf(client)
	if err != nil {
		return err
	}
	for i := range client.AddressableDevices() {
		if _, err := calls.pinnedMemory(client, i); err != nil {
			return err
		}
	}
	return nil
}

// pluginCalls are functions of a PJRT plugin.
type pluginCalls struct{ memories, kind, copy, destroy, message, destroyError unsafe.Pointer }

func callsOf(client *pjrt.Client) (c pluginCalls, err error) {
	api, err := hiddenField(client.Plugin(), "api", reflect.Pointer)
	if err != nil {
		return c, hiddenLack(err)
	}
	for name, to := range map[string]*unsafe.Pointer{
		"PJRT_Device_AddressableMemories": &c.memories, "PJRT_Memory_Kind": &c.kind, "PJRT_Buffer_CopyToMemory": &c.copy,
		"PJRT_Buffer_Destroy": &c.destroy, "PJRT_Error_Message": &c.message, "PJRT_Error_Destroy": &c.destroyError,
	} {
		if *to = pluginFunction(api, name); *to == nil {
			return c, &PinnedError{"the PJRT plugin has no function " + name}
		}
	}
	return c, nil
}

// failed makes an error of one of the plugin's, which it frees; nil of nil.
func (c pluginCalls) failed(from unsafe.Pointer) error {
	if from == nil {
		return nil
	}
	var said C.message_arguments
	C.ask_message(c.message, &said, from)
	err := errors.New(C.GoStringN(said.message, C.int(said.message_size)))
	C.destroy(c.destroyError, from)
	return err
}

// pinnedMemory is the pinned memory that a device of this process reaches.
func (c pluginCalls) pinnedMemory(client *pjrt.Client, device int) (unsafe.Pointer, error) {
	own, err := hiddenField(client.AddressableDevices()[device], "cDevice", reflect.Pointer)
	if err != nil {
		return nil, hiddenLack(err)
	}
	var list C.memories_arguments
	if err := c.failed(C.list_memories(c.memories, &list, own.UnsafePointer())); err != nil {
		return nil, &PinnedError{fmt.Sprintf("the PJRT plugin does not list the memories of GPU %d: %v", device, err)}
	}
	var kinds []string
	for i := range list.num_memories {
		var is C.kind_arguments
		if err := c.failed(C.ask_kind(c.kind, &is, list.memories, i)); err != nil {
			return nil, &PinnedError{err.Error()}
		}
		kind := C.GoStringN(is.kind, C.int(is.kind_size))
		if kind == pinnedHost {
			return unsafe.Slice(list.memories, list.num_memories)[i], nil
		}
		kinds = append(kinds, kind)
	}
	return nil, &PinnedError{fmt.Sprintf("the PJRT plugin has no memory %q for GPU %d, only %q", pinnedHost, device, strings.Join(kinds, ", "))}
}

// moveToHost copies a buffer of a device of this process to pinned memory, and lets go of what it was copied from.
func moveToHost(backend compute.Backend, buffer compute.Buffer, device int) error {
	client, err := clientOf(backend)
	if err != nil {
		return hiddenLack(err)
	}
	calls, err := callsOf(client)
	if err != nil {
		return err
	}
	memory, err := calls.pinnedMemory(client, device)
	if err != nil {
		return err
	}
	held, err := hiddenField(buffer, "pjrtBuffer", reflect.Pointer)
	if err != nil {
		return hiddenLack(err)
	}
	wrapper, err := hiddenField(held.Interface(), "wrapper", reflect.Pointer)
	if err != nil {
		return hiddenLack(err)
	}
	own := wrapper.Elem().FieldByName("c")
	if !own.IsValid() || own.Kind() != reflect.Pointer {
		return hiddenLack(fmt.Errorf("%s has no pointer c", wrapper.Type()))
	}
	at := (*unsafe.Pointer)(own.Addr().UnsafePointer())
	var copied unsafe.Pointer
	if err := calls.failed(C.copy_to(calls.copy, *at, memory, &copied)); err != nil {
		return err
	}
	from := *at
	*at = copied
	return calls.failed(C.destroy(calls.destroy, from))
}
