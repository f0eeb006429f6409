//go:build cuda

package engine

/*
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

// Functions of cudacallbacks.go. They return a PJRT error code (0 for success) and a message that
// the caller frees.
extern int cageGet(uintptr_t processes, char* key, size_t key_size, int64_t milliseconds,
                   char** value, size_t* value_size, char** message);
extern int cagePut(uintptr_t processes, char* key, size_t key_size, char* value, size_t value_size,
                   char** message);

// The arguments of PJRT_Client_Create and of the callbacks that it takes; PJRT adds fields only at
// the end.
typedef void* (*make_error)(int code, const char* message, size_t size);

typedef struct {
	size_t size;
	void* extensions;
	char* key;
	size_t key_size;
	int milliseconds;
	make_error* error;
	void* processes;
	char* value;
	size_t value_size;
	void (*delete_value)(char*);
} get_arguments;

typedef struct {
	size_t size;
	void* extensions;
	char* key;
	size_t key_size;
	make_error* error;
	void* processes;
	char* value;
	size_t value_size;
	void (*delete_value)(char*);
} try_arguments;

typedef struct {
	size_t size;
	void* extensions;
	char* key;
	size_t key_size;
	char* value;
	size_t value_size;
	make_error* error;
	void* processes;
} put_arguments;

typedef struct {
	size_t size;
	void* extensions;
	const void* options;
	size_t num_options;
	void *get, *get_processes, *put, *put_processes;
	void* client;
	void *try, *try_processes;
} create_arguments;

static void* as_error(make_error* error, int code, char* message) {
	if (!code) return NULL;
	void* made = (*error)(code, message, strlen(message));
	free(message);
	return made;
}

static void delete_value(char* value) { free(value); }

static void* get(get_arguments* a) {
	char* message = NULL;
	a->delete_value = delete_value;
	int64_t milliseconds = a->milliseconds > 0 ? a->milliseconds : 1;
	int code = cageGet((uintptr_t)a->processes, a->key, a->key_size, milliseconds,
	                   &a->value, &a->value_size, &message);
	return as_error(a->error, code, message);
}

static void* try_get(try_arguments* a) {
	char* message = NULL;
	a->delete_value = delete_value;
	int code = cageGet((uintptr_t)a->processes, a->key, a->key_size, 0,
	                   &a->value, &a->value_size, &message);
	return as_error(a->error, code, message);
}

static void* put(put_arguments* a) {
	char* message = NULL;
	int code = cagePut((uintptr_t)a->processes, a->key, a->key_size, a->value, a->value_size,
	                   &message);
	return as_error(a->error, code, message);
}

// The state of create, which replaces PJRT_Client_Create and adds the callbacks to its arguments.
// Clients are created one at a time.
static void* (*original)(create_arguments*);
static uintptr_t processes;

static void* create(create_arguments* a) {
	a->get = get;
	a->put = put;
	if (a->size >= sizeof *a) a->try = try_get;
	a->get_processes = a->put_processes = (void*)processes;
	if (a->size >= sizeof *a) a->try_processes = (void*)processes;
	return original(a);
}

// interpose replaces a function in a table with create.
static void interpose(void* table, size_t offset, uintptr_t of) {
	void** function = (void**)((char*)table + offset);
	original = (void* (*)(create_arguments*))*function;
	processes = of;
	*function = create;
}
*/
import "C"

import (
	"errors"
	"fmt"
	"reflect"
	"runtime/cgo"
	"sync"

	"github.com/gomlx/go-xla/pjrt"
)

// XLA's GPU client takes its process's rank, the number of processes, and three key-value callbacks
// by which clients exchange their addresses. go-xla v0.4.13 passes the two numbers but no
// callbacks. So openXLA replaces PJRT_Client_Create, in a copy of the plugin's function table, with
// a function that adds them. docs/upstream describes the change to go-xla that would make this
// unnecessary.

// openXLA creates an XLA client on a loaded plugin, connected to those of other processes if any.
func openXLA(plugin string, opts Options) (client, error) {
	loaded, err := pjrt.GetPlugin(plugin)
	if err != nil {
		return nil, err
	}
	options := clientOptions(opts)
	p := opts.Processes
	if p == nil {
		c, err := loaded.NewClient(options)
		if err != nil {
			return nil, err
		}
		return &pjrtClient{c, c.NumDevices()}, nil
	}
	n := opts.Count / p.Size()
	options["node_id"], options["num_nodes"] = int64(p.Rank()), int64(p.Size())
	if releaseOf(plugin) > 0 {
		if own := ownGPUs(askDriver().Devices, p.Local(), n); own != nil {
			options["visible_devices"] = own
		}
	}
	var c *pjrt.Client
	err = beside(loaded, p, func() (err error) {
		c, err = loaded.NewClient(options)
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := spread(c, opts.Count, n); err != nil {
		return nil, errors.Join(err, c.Destroy())
	}
	return &pjrtClient{c, opts.Count}, nil
}

// interposing is held while a client is created.
var interposing sync.Mutex

// beside calls create while the callbacks of p are passed to the client that it creates.
func beside(plugin *pjrt.Plugin, p Processes, create func() error) error {
	interposing.Lock()
	defer interposing.Unlock()
	api := hidden(plugin, "api")
	table := api.Type().Elem()
	slot, ok := table.FieldByName("PJRT_Client_Create")
	size := api.Elem().FieldByName("struct_size")
	if !ok || !size.IsValid() || uint64(slot.Offset) >= size.Uint() {
		return errors.New("the plugin's function table has no PJRT_Client_Create")
	}
	before := api.UnsafePointer()
	changed := C.malloc(C.size_t(max(size.Uint(), uint64(table.Size()))))
	defer C.free(changed)
	C.memcpy(changed, before, C.size_t(size.Uint()))
	handle := cgo.NewHandle(p) // never deleted: the client may call back for its whole lifetime
	C.interpose(changed, C.size_t(slot.Offset), C.uintptr_t(handle))
	api.Set(reflect.NewAt(table, changed))
	defer api.Set(reflect.NewAt(table, before))
	return create()
}

// spread makes go-xla count the devices of all processes, because it compiles for at most as many
// as it counts, by default those of this process. This process's devices come first in its list, so
// that they keep their device numbers, which uploads use.
func spread(client *pjrt.Client, count, own int) error {
	local := client.AddressableDevices()
	if len(local) != own {
		return fmt.Errorf("%d replicas need %d GPU(s) in each process, but this one has %d, "+
			"as far as CUDA_VISIBLE_DEVICES lets it see them", count, own, len(local))
	}
	all, err := client.AllDevices()
	if err != nil {
		return err
	}
	if len(all) != count {
		return fmt.Errorf("the processes have %d GPUs together, want %d", len(all), count)
	}
	list := append([]*pjrt.Device{}, local...)
	for _, d := range all {
		mine, err := d.IsAddressable()
		if err != nil {
			return err
		}
		if !mine {
			list = append(list, d)
		}
	}
	hidden(client, "addressableDevices").Set(reflect.ValueOf(list))
	return nil
}
