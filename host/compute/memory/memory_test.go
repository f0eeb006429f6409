package memory_test

import (
	"fmt"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cage-qat/cage/host/compute/memory"
)

// TestGet checks that slices of each type have the length asked for, new and used ones.
func TestGet(t *testing.T) {
	var pool memory.Pool
	for range 3 {
		for length := range 5 {
			floats := pool.Get(reflect.TypeFor[float32](), length)
			bytes := pool.Get(reflect.TypeFor[int8](), length)
			if len(floats.([]float32)) != length || len(bytes.([]int8)) != length {
				t.Errorf("got %v and %v, want %d elements", floats, bytes, length)
			}
			pool.Put(floats)
			pool.Put(bytes)
		}
	}
}

// TestSweep checks that slices which nobody has used for a while are dropped, and no others.
func TestSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var pool memory.Pool
		first := pool.Get(reflect.TypeFor[float32](), 2).([]float32)
		pool.Put(first)
		first[0] = 7
		time.Sleep(50 * time.Second)
		pool.Put(pool.Get(reflect.TypeFor[int32](), 1))
		if again := pool.Get(reflect.TypeFor[float32](), 2).([]float32); again[0] != 7 {
			t.Error("a slice is dropped after 50 seconds")
		} else {
			pool.Put(again)
		}
		time.Sleep(2 * time.Minute)
		pool.Put(pool.Get(reflect.TypeFor[int32](), 1))
		if again := pool.Get(reflect.TypeFor[float32](), 2).([]float32); again[0] == 7 {
			t.Error("a slice is kept for two minutes")
		}
	})
}

func Example() {
	var pool memory.Pool
	slice := pool.Get(reflect.TypeFor[uint16](), 3)
	fmt.Println(slice)
	pool.Put(slice)
	// Output: [0 0 0]
}
