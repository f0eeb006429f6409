//go:build cuda

package engine

// #include <stdbool.h>
// #include <stddef.h>
// #include <stdint.h>
//
// // The arguments of PJRT_Device_MemoryStats, up to the limit; PJRT adds fields at the end only.
// typedef struct {
// 	size_t size;
// 	void* extensions;
// 	void* device;
// 	int64_t in_use, peak;
// 	bool has_peak;
// 	int64_t allocations;
// 	bool has_allocations;
// 	int64_t largest;
// 	bool has_largest;
// 	int64_t limit;
// 	bool has_limit;
// 	char later[256]; // what newer versions write
// } stats;
//
// // ask_limit returns the limit, or 0 if the plugin does not report it.
// static int64_t ask_limit(void* function, void* destroy, void* device) {
// 	stats args = {.size = sizeof args, .device = device};
// 	void* error = ((void* (*)(stats*))function)(&args);
// 	if (error) {
// 		struct { size_t size; void *extensions, *error; } gone = {sizeof gone, NULL, error};
// 		((void (*)(void*))destroy)(&gone);
// 		return 0;
// 	}
// 	return args.has_limit ? args.limit : 0;
// }
import "C"

import (
	"reflect"
	"unsafe"
)

// memoryLimit returns the memory limit of the first device. go-xla v0.4.13 does not expose it, so
// this calls the plugin's function.
func (client *pjrtClient) memoryLimit() (int64, bool) {
	if len(client.AddressableDevices()) == 0 {
		return 0, false
	}
	device, api := hidden(client.AddressableDevices()[0], "cDevice"), hidden(client.Plugin(), "api")
	function := pluginFunction(api, "PJRT_Device_MemoryStats")
	destroy := pluginFunction(api, "PJRT_Error_Destroy")
	if function == nil || destroy == nil {
		return 0, false
	}
	limit := int64(C.ask_limit(function, destroy, device.UnsafePointer()))
	return limit, limit > 0
}

// pluginFunction returns the function of a PJRT plugin with the given name in PJRT's C interface;
// nil if the plugin is too old to have it.
func pluginFunction(api reflect.Value, name string) unsafe.Pointer {
	field, ok := api.Type().Elem().FieldByName(name)
	size := api.Elem().FieldByName("struct_size")
	if !ok || !size.IsValid() || uint64(field.Offset) >= size.Uint() {
		return nil
	}
	return *(*unsafe.Pointer)(unsafe.Add(api.UnsafePointer(), field.Offset))
}
